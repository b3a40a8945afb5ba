-- Renew entries, in the order of the arrays: set their expiry to now + ttl, and say where they stand. What is gone
-- stays gone. `outlive`: which of them are to outlive their process from now on. Such a holder may expire earlier than
-- before, so the first waiter is told to look again. The answer is that of holdfast_enter.
CREATE OR REPLACE FUNCTION public.holdfast_renew(
  keys text[], ids text[], ttls bigint[], outlive boolean[], engine_id text, row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  i integer;
  own_token bigint;
  line public.holdfast_line;
  was public.holdfast_line;
  saved boolean;
  opened record;
  renewed record;
  news json[];
  answers text[] := array_fill('u'::text, ARRAY[cardinality(keys)]);
  waiting boolean := false;
BEGIN
  FOR i IN SELECT a.i FROM unnest(keys) WITH ORDINALITY AS a(key, i) ORDER BY a.key COLLATE "C", a.i LOOP
    IF line.key IS DISTINCT FROM keys[i] THEN
      UPDATE public.holdfast_line l SET
          expires_at = greatest(
            clock_timestamp() + ttls[i] * interval '1 ms',
            CASE WHEN l.client IS NULL AND NOT outlive[i] THEN l.expires_at END),
          ttl_ms = ttls[i], client = CASE WHEN NOT outlive[i] THEN l.client END
        WHERE l.key = keys[i] AND l.id = ids[i] AND NOT l.evicted AND l.expires_at > clock_timestamp()
        RETURNING l.token INTO own_token;
      IF FOUND THEN
        answers[i] := own_token;
        CONTINUE;
      END IF;
      --#include open_next_line
    END IF;
    CONTINUE WHEN line.key IS NULL;
    renewed := public.holdfast_renew_entry(line, ids[i], ttls[i], outlive[i]);
    line := renewed.line;
    answers[i] := renewed.answer;
    IF outlive[i] AND renewed.answer ~ '^[0-9]' THEN
      news := public.holdfast_tell_first(line, news, engine_id);
    END IF;
    waiting := waiting OR renewed.answer ~ '^[wq]';
  END LOOP;
  saved := public.holdfast_save_line(line, was);
  IF waiting AND engine_id <> '' THEN
    -- An empty message to the calling process: with each beat it learns that messages still arrive.
    PERFORM pg_notify('holdfast_' || engine_id, '');
  END IF;
  RETURN array_to_string(answers, ' ') || coalesce(E'\n' || to_json(news), '');
END $$;
