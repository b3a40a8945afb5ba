-- Leave lines, in the order of the arrays, and let the waiters hold that now can. The answer has for each place `1` if
-- it was in the line, `2` if it was and the disk has not been waited for, else `0`, without blanks; and after a line
-- break, if there is any, the news for entries of the calling process, as a JSON array.
--
-- A call that only hands off does not wait for the disk. The next holder's entry is there already: should the server
-- crash before the rest is, it finds the line as it was, and no other entry is let in before that next holder. The
-- process that left is told, so that it can leave once more after a crash.
CREATE OR REPLACE FUNCTION public.holdfast_leave(keys text[], ids text[], engine_id text, row_wait_ms integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  i integer;
  lived boolean;
  line public.holdfast_line;
  was public.holdfast_line;
  saved boolean;
  opened record;
  leaving record;
  news json[];
  handed integer := 0;
  answers text[] := array_fill('0'::text, ARRAY[cardinality(keys)]);
BEGIN
  FOR i IN SELECT a.i FROM unnest(keys) WITH ORDINALITY AS a(key, i) ORDER BY a.key COLLATE "C", a.i LOOP
    IF line.key IS DISTINCT FROM keys[i] THEN
      UPDATE public.holdfast_line l SET id = NULL WHERE l.key = keys[i] AND l.id = ids[i]
        RETURNING l.expires_at > clock_timestamp() INTO lived;
      IF FOUND THEN
        answers[i] := lived::integer;
        CONTINUE;
      END IF;
      --#include open_next_line
    END IF;
    CONTINUE WHEN line.key IS NULL;
    leaving := public.holdfast_leave_line(line, news, ids[i], engine_id);
    line := leaving.line;
    news := leaving.news;
    answers[i] := leaving.lived::integer;
    handed := handed + leaving.handed::integer;
  END LOOP;
  saved := public.holdfast_save_line(line, was);
  IF handed = cardinality(keys) THEN
    prepared := set_config('synchronous_commit', 'off', true);
    answers := array_fill('2'::text, ARRAY[handed]);
  END IF;
  RETURN array_to_string(answers, '') || coalesce(E'\n' || to_json(news), '');
END $$;

-- Leave one line: the same, for the usual holder, which goes alone, and leaves the line free or to the first waiter.
-- The waiter waits for each statement here, so there are few. The first one frees a line in which the holder was alone.
-- In a crowd with one holder of a mutex (nothing has expired, and there is a waiter) it passes the line on to the first
-- waiter. If that turns out to be wrong, because the caller does not hold the line, or the first waiter is no mutex, it
-- is taken back.
CREATE OR REPLACE FUNCTION public.holdfast_leave_one(own_key text, own_id text, engine_id text, row_wait_ms integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  passes boolean;
  lived boolean;
  next_token bigint;
  next_engine_id text;
  message text;
  opened record;
  leaving record;
  saved boolean;
BEGIN
  UPDATE public.holdfast_line l SET
      id = NULL, held_until = coalesce(l.head, l.held_until), waiting = l.waiting - l.crowd::integer,
      head = CASE WHEN l.waiting > 1 THEN public.holdfast_first_waiter(own_key, l.head) END
    WHERE l.key = own_key
      AND (l.id = own_id
        OR (l.crowd AND l.held = 1 AND l.held_weight = 1 AND l.held_limit = 1 AND l.head IS NOT NULL
          AND l.next_expiry > clock_timestamp()))
    RETURNING l.crowd, l.held_until, l.expires_at > clock_timestamp() INTO passes, next_token, lived;
  IF NOT passes THEN
    RETURN lived::integer;
  END IF;
  IF passes THEN
    UPDATE public.holdfast_entry e SET held_at = clock_timestamp()
      WHERE e.key = own_key AND e.token = next_token AND e."limit" = 1
        AND EXISTS (SELECT FROM public.holdfast_entry o
          WHERE o.id = own_id AND o.key || '' = own_key AND o.held_at IS NOT NULL AND NOT o.removed)
      RETURNING e.client,
        json_build_array(e.key, e.id, e.token::text, extract(epoch FROM e.expires_at - e.held_at) * 1000)
      INTO next_engine_id, message;
    IF FOUND THEN
      DELETE FROM public.holdfast_entry e WHERE e.id = own_id AND e.key || '' = own_key;
      prepared := set_config('synchronous_commit', 'off', true);
      RETURN '2' || CASE
        WHEN next_engine_id = engine_id THEN E'\n[' || message || ']'
        WHEN next_engine_id <> '' THEN pg_notify('holdfast_' || next_engine_id, message)::text
        ELSE '' END;
    END IF;
    UPDATE public.holdfast_line l SET held_until = next_token - 1, waiting = l.waiting + 1, head = next_token
      WHERE l.key = own_key;
  END IF;
  opened := public.holdfast_open_line(own_key, engine_id, NULL);
  IF opened.line IS NULL THEN
    RETURN '0';
  END IF;
  leaving := public.holdfast_leave_line(opened.line, opened.news, own_id, engine_id);
  saved := public.holdfast_save_line(leaving.line, opened.was);
  IF leaving.handed THEN
    prepared := set_config('synchronous_commit', 'off', true);
  END IF;
  RETURN leaving.lived::integer + leaving.handed::integer || coalesce(E'\n' || to_json(leaving.news), '');
END $$;

-- Leave an open line. `lived`: the entry was in the line; `handed`: a waiter holds that did not before.
CREATE OR REPLACE FUNCTION public.holdfast_leave_line(
  INOUT line public.holdfast_line, INOUT news json[], own_id text, engine_id text, OUT lived boolean, OUT handed boolean
) LANGUAGE plpgsql AS $$
DECLARE
  held_before bigint := line.held_until;
  entry public.holdfast_entry;
  settled record;
BEGIN
  lived := false;
  handed := false;
  IF line.id = own_id THEN
    line.id := NULL;
    lived := true;
  ELSIF line.crowd THEN
    DELETE FROM public.holdfast_entry e WHERE e.id = own_id AND e.key || '' = line.key AND NOT e.removed
      RETURNING e.* INTO entry;
    lived := FOUND;
    IF lived THEN
      settled := public.holdfast_settle_line(public.holdfast_drop_entry(line, entry), news, engine_id);
      line := settled.line;
      news := settled.news;
      handed := line.held_until > held_before;
    END IF;
  END IF;
END $$;
