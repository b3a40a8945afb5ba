-- Lines that are entered together with a change of the record beside them, and left together with one.
--
-- As in records.sql: all records are locked before all lines, both in the order of their keys. What is refused as
-- things are is refused without a lock: a replay waits for nothing, also while a transaction of the user has the record
-- locked, and writes nothing.

-- Enter each line that is free and make the change beside it, or neither, in the order of the arrays. The claims ask
-- for all there is, and do not wait. For `vals` to `marks_below` see holdfast_put. The answer is a JSON array: the
-- time, and for each entrance
--     ["stored", version, mark, token]
--     as in holdfast_put, where it was refused: by "holding" if the line was not free
-- and after a line break, if there is any, the news for entries of the calling process, as a JSON array.
CREATE OR REPLACE FUNCTION public.holdfast_begin(
  keys text[], vals text[], ttls bigint[], marks bigint[], absents boolean[], versions bigint[], marks_below bigint[],
  ids text[], holders text[], leases bigint[], engine_id text, row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  answers json[] := array_fill(NULL::json, ARRAY[cardinality(keys)]);
  -- The keys of entrances that a look without a lock does not refuse.
  wanted text[] := '{}';
  own_key text;
  i integer;
  entered text;
  news json[];
BEGIN
  FOR i IN 1 .. cardinality(keys) LOOP
    -- What becomes of the second one of a line depends on the first.
    IF keys[i] <> ALL (wanted) THEN
      answers[i] := public.holdfast_refuse_entry(keys[i], ids[i], absents[i], versions[i], marks_below[i]);
    END IF;
    IF answers[i] IS NULL THEN
      wanted := wanted || keys[i];
    END IF;
  END LOOP;
  IF cardinality(wanted) > 0 THEN
    FOR own_key IN SELECT DISTINCT a.key COLLATE "C" FROM unnest(wanted) AS a(key) ORDER BY 1 LOOP
      PERFORM public.holdfast_lock_record(own_key);
    END LOOP;
    FOR i IN
      SELECT a.i FROM unnest(keys) WITH ORDINALITY AS a(key, i) WHERE answers[a.i] IS NULL
        ORDER BY a.key COLLATE "C", a.i
    LOOP
      answers[i] := public.holdfast_refuse_entry(keys[i], ids[i], absents[i], versions[i], marks_below[i]);
      CONTINUE WHEN answers[i] IS NOT NULL;
      entered := public.holdfast_enter_one(
        keys[i], ids[i], holders[i], 1, 1, leases[i], false, engine_id, row_wait_ms);
      news := news || public.holdfast_news_in(entered);
      entered := split_part(entered, E'\n', 1);
      answers[i] := public.holdfast_put_entered(
        keys[i], vals[i], ttls[i], marks[i], ids[i], absents[i], versions[i], marks_below[i],
        CASE WHEN entered ~ '^[0-9]' THEN entered END);
      IF entered ~ '^[0-9]' AND answers[i]->>0 <> 'stored' THEN
        -- It was in the line, and what it had stored then is not there any more.
        news := public.holdfast_go(keys[i], ids[i], engine_id, news);
      END IF;
    END LOOP;
    DELETE FROM public.holdfast_record r WHERE r.key = ANY (wanted) AND r.version = 0;
  END IF;
  RETURN json_build_array(public.holdfast_time(clock_timestamp()), to_json(answers))
    || coalesce(E'\n' || to_json(news), '');
END $$;

-- Make each change, in the order of the arrays, and leave the line beside it if it was made. The answer is that of
-- holdfast_put, and after a line break, if there is any, the news for entries of the calling process.
CREATE OR REPLACE FUNCTION public.holdfast_end(
  keys text[], vals text[], ttls bigint[], marks bigint[], absents boolean[], versions bigint[], marks_below bigint[],
  ids text[], engine_id text, row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  own_key text;
  i integer;
  answers json[] := array_fill(NULL::json, ARRAY[cardinality(keys)]);
  refused integer := 0;
  news json[];
BEGIN
  FOR own_key IN SELECT DISTINCT a.key COLLATE "C" FROM unnest(keys) AS a(key) ORDER BY 1 LOOP
    PERFORM public.holdfast_lock_record(own_key);
  END LOOP;
  FOR i IN SELECT a.i FROM unnest(keys) WITH ORDINALITY AS a(key, i) ORDER BY a.key COLLATE "C", a.i LOOP
    answers[i] := public.holdfast_put_record(
      keys[i], vals[i], ttls[i], marks[i], NULL, absents[i], versions[i], marks_below[i], NULL, NULL, NULL);
    IF answers[i]->>0 <> 'stored' THEN
      refused := refused + 1;
      CONTINUE;
    END IF;
    news := public.holdfast_go(keys[i], ids[i], engine_id, news);
  END LOOP;
  IF refused > 0 THEN
    DELETE FROM public.holdfast_record r WHERE r.key = ANY (keys) AND r.version = 0;
  END IF;
  IF refused = cardinality(keys) THEN
    prepared := set_config('synchronous_commit', 'off', true);
  END IF;
  RETURN json_build_array(public.holdfast_time(clock_timestamp()), to_json(answers))
    || coalesce(E'\n' || to_json(news), '');
END $$;

-- The answer to an entrance that is refused as things are; null if it is not, or if its entry is in the line already.
-- One statement reads both the record and the line: a record of now beside a line of before would look like a crash.
CREATE OR REPLACE FUNCTION public.holdfast_refuse_entry(
  own_key text, own_id text, absent boolean, own_version bigint, mark_below bigint
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
  found record;
BEGIN
  SELECT r AS stored,
      EXISTS (
        SELECT FROM public.holdfast_line l WHERE l.key = own_key AND l.id IS NOT NULL AND l.expires_at > now)
      OR EXISTS (
        SELECT FROM public.holdfast_entry e WHERE e.key = own_key AND NOT e.removed AND e.expires_at > now) AS busy,
      EXISTS (SELECT FROM public.holdfast_line l WHERE l.key = own_key AND l.id = own_id)
      OR EXISTS (SELECT FROM public.holdfast_entry e WHERE e.id = own_id AND e.key || '' = own_key) AS known
    INTO found FROM (SELECT) AS one LEFT JOIN public.holdfast_record r ON r.key = own_key;
  RETURN CASE WHEN NOT found.known THEN
    public.holdfast_refusal(found.stored, now, own_key, own_id, absent, own_version, mark_below, NOT found.busy) END;
END $$;

-- Make the change of an entrance, whose record is locked; `token` is that of its entry, null if that does not hold. One
-- that has arrived before, and has stored this very value, is answered as the first time.
CREATE OR REPLACE FUNCTION public.holdfast_put_entered(
  own_key text, own_value text, ttl bigint, own_mark bigint, own_id text, absent boolean, own_version bigint,
  mark_below bigint, token text
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  answer json := public.holdfast_put_record(
    own_key, own_value, ttl, own_mark, own_id, absent, own_version, mark_below, token IS NOT NULL, false, NULL);
BEGIN
  RETURN CASE
    WHEN answer->>0 = 'stored' THEN json_build_array('stored', answer->>1, answer->>2, token)
    WHEN token IS NOT NULL AND answer->1->>0 = own_value THEN
      json_build_array('stored', answer->1->>1, answer->1->>2, token)
    ELSE answer END;
END $$;

-- Leave a line, as holdfast_leave does. The commit waits for the disk all the same: a record goes with it.
CREATE OR REPLACE FUNCTION public.holdfast_go(own_key text, own_id text, engine_id text, news json[])
RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  opened record;
  leaving record;
  saved boolean;
BEGIN
  UPDATE public.holdfast_line l SET id = NULL WHERE l.key = own_key AND l.id = own_id;
  IF FOUND THEN
    RETURN news;
  END IF;
  opened := public.holdfast_open_line(own_key, engine_id, news);
  IF opened.line IS NULL THEN
    RETURN news;
  END IF;
  leaving := public.holdfast_leave_line(opened.line, opened.news, own_id, engine_id);
  saved := public.holdfast_save_line(leaving.line, opened.was);
  RETURN leaving.news;
END $$;

-- The news that a call of a line has put behind its answer.
CREATE OR REPLACE FUNCTION public.holdfast_news_in(answer text)
RETURNS json[] LANGUAGE plpgsql AS $$
BEGIN
  IF position(E'\n' IN answer) = 0 THEN
    RETURN NULL;
  END IF;
  RETURN ARRAY(SELECT json_array_elements(split_part(answer, E'\n', 2)::json));
END $$;
