-- Enter lines, in the order of the arrays.
--
-- `nth` is 0 for the first claim of its key, and then 1, 2, ...; `engine_id` is under which name the calling process
-- listens, '' if it does not; `row_wait_ms`, how long to wait for a row that another transaction has locked. The answer
-- has for each claim, separated by blanks, one of
--     <token>               it holds
--     w:<ahead>:<ms>        it waits, the first in line; q:<ahead>:<ms> behind others (see holdfast_wait_answer)
--     b:<ahead>             busy, for a claim that does not want to wait
--     e  u  f               gone: evicted, or unknown; the line is full
-- and after a line break, if there is any, the news for entries of the calling process, as a JSON array.
--
-- Nearly always every line is free. Then one statement does it all: it locks each row, in the order of their keys, and
-- takes those that are free. What is left goes one by one; all rows are locked by then, and each statement from here on
-- sees them as they are now, and not as they were when the wait for a lock began.
CREATE OR REPLACE FUNCTION public.holdfast_enter(
  keys text[], ids text[], holders text[], weights integer[], limits integer[], ttls bigint[], waits boolean[],
  nth integer[], engine_id text, row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
  news json[];
  answers text[];
  entered_at timestamptz;
  oldest bigint;
  lowest bigint;
  i integer;
  line public.holdfast_line;
  was public.holdfast_line;
  saved boolean;
  opened record;
  joined record;
BEGIN
  WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(keys, ids, holders, weights, limits, ttls, nth) WITH ORDINALITY
      AS a(key, id, holder, weight, "limit", ttl_ms, nth, i)
  ), entered AS (
    INSERT INTO public.holdfast_line AS l (key, token, id, holder, weight, "limit", ttl_ms, expires_at, since, client)
      SELECT a.key, now_us + a.i, a.id, a.holder, a.weight, a."limit", a.ttl_ms,
          clock_timestamp() + a.ttl_ms * interval '1 ms', clock_timestamp(), engine_id
        FROM asked a WHERE a.nth = 0 ORDER BY a.key COLLATE "C"
      --#include take_free_line
      RETURNING l.key, l.token, l.xmax = 0 AS fresh
  )
  SELECT array_agg(e.token::text ORDER BY a.i), min(e.token) FILTER (WHERE e.fresh)
    INTO answers, oldest
    FROM asked a LEFT JOIN entered e ON e.key = a.key AND a.nth = 0;

  IF oldest IS NOT NULL THEN
    -- Rows that were not there: their tokens have to be above those that the lines had before.
    SELECT m.floor INTO STRICT lowest FROM public.holdfast_meta m;
    IF oldest <= lowest THEN
      answers := public.holdfast_raise_tokens(keys, answers, lowest);
    END IF;
  END IF;
  -- One moment for all of them, as they came together: so they expire together.
  entered_at := clock_timestamp();
  FOR i IN
    SELECT a.i FROM unnest(keys, answers) WITH ORDINALITY AS a(key, answer, i)
      WHERE a.answer IS NULL ORDER BY a.key COLLATE "C", a.i
  LOOP
    IF line.key IS DISTINCT FROM keys[i] THEN
      --#include open_next_line
    END IF;
    joined := public.holdfast_enter_line(
      line, ids[i], holders[i], weights[i], limits[i], ttls[i], waits[i], engine_id, now_us + i, entered_at);
    line := joined.line;
    answers[i] := joined.answer;
  END LOOP;
  saved := public.holdfast_save_line(line, was);
  RETURN array_to_string(answers, ' ') || coalesce(E'\n' || to_json(news), '');
END $$;

-- Enter one line: the same, for the usual claim, which comes alone and finds the line free.
CREATE OR REPLACE FUNCTION public.holdfast_enter_one(
  own_key text, own_id text, own_holder text, own_weight integer, own_limit integer, ttl bigint, waits boolean,
  engine_id text, row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  now timestamptz := clock_timestamp();
  now_us bigint := extract(epoch FROM now) * 1000000;
  own_token bigint;
  fresh boolean;
  lowest bigint;
  opened record;
  joined record;
  saved boolean;
BEGIN
  INSERT INTO public.holdfast_line AS l (key, token, id, holder, weight, "limit", ttl_ms, expires_at, since, client)
    VALUES (
      own_key, now_us, own_id, own_holder, own_weight, own_limit, ttl, now + ttl * interval '1 ms', now, engine_id)
    --#include take_free_line
    RETURNING l.token, l.xmax = 0 INTO own_token, fresh;
  IF fresh THEN
    SELECT m.floor INTO STRICT lowest FROM public.holdfast_meta m;
    IF own_token <= lowest THEN
      RETURN (public.holdfast_raise_tokens(ARRAY[own_key], ARRAY[own_token::text], lowest))[1];
    END IF;
  END IF;
  IF own_token IS NOT NULL THEN
    RETURN own_token;
  END IF;
  opened := public.holdfast_open_line(own_key, engine_id, NULL);
  joined := public.holdfast_enter_line(
    opened.line, own_id, own_holder, own_weight, own_limit, ttl, waits, engine_id, now_us, clock_timestamp());
  saved := public.holdfast_save_line(joined.line, opened.was);
  RETURN joined.answer || coalesce(E'\n' || to_json(opened.news), '');
END $$;

-- Tokens of rows that were not there before, raised above the floor: the clock was set back, or the server stood still
-- in between.
CREATE OR REPLACE FUNCTION public.holdfast_raise_tokens(keys text[], answers text[], lowest bigint)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  raised bigint;
BEGIN
  FOR i IN 1 .. cardinality(keys) LOOP
    IF answers[i]::bigint <= lowest THEN
      UPDATE public.holdfast_line l SET token = lowest + 1 WHERE l.key = keys[i] RETURNING l.token INTO STRICT raised;
      answers[i] := raised;
    END IF;
  END LOOP;
  RETURN answers;
END $$;

-- Enter an open line that was not free a moment ago.
CREATE OR REPLACE FUNCTION public.holdfast_enter_line(
  INOUT line public.holdfast_line, own_id text, own_holder text, own_weight integer, own_limit integer, ttl bigint,
  waits boolean, engine_id text, token_us bigint, now timestamptz, OUT answer text
) LANGUAGE plpgsql AS $$
DECLARE
  size integer := line.held + line.waiting + (line.id IS NOT NULL)::integer;
  holds boolean;
  known record;
BEGIN
  IF size > 0 OR line.crowd THEN
    known := public.holdfast_renew_entry(line, own_id, ttl, false);
    line := known.line;
    answer := known.answer;
    IF answer <> 'u' THEN
      RETURN;
    END IF;
  END IF;
  IF line.id IS NOT NULL THEN
    holds := line.weight::bigint + own_weight <= least(line."limit", own_limit);
  ELSE
    holds := line.waiting = 0 AND line.held_weight + own_weight <= least(line.held_limit, own_limit);
  END IF;
  IF NOT holds AND NOT waits THEN
    answer := 'b:' || size;
    RETURN;
  END IF;
  IF size >= 10000 THEN
    answer := 'f';
    RETURN;
  END IF;
  IF line.id IS NOT NULL THEN
    line := public.holdfast_make_crowd(line);
  END IF;
  line.token := greatest(line.token + 1, token_us);
  answer := line.token;
  IF NOT line.crowd THEN
    line.id := own_id;
    line.holder := own_holder;
    line.weight := own_weight;
    line."limit" := own_limit;
    line.ttl_ms := ttl;
    line.expires_at := now + ttl * interval '1 ms';
    line.since := now;
    line.client := engine_id;
    line.evicted := false;
    RETURN;
  END IF;
  INSERT INTO public.holdfast_entry (
      key, token, id, holder, weight, "limit", ttl_ms, expires_at, since, held_at, client)
    VALUES (
      line.key, line.token, own_id, own_holder, own_weight, own_limit, ttl, now + ttl * interval '1 ms', now,
      CASE WHEN holds THEN now END, engine_id);
  line.next_expiry := least(line.next_expiry, now + ttl * interval '1 ms');
  IF holds THEN
    line := public.holdfast_add_holder(line, line.token, own_weight, own_limit);
  ELSE
    line.waiting := line.waiting + 1;
    line.head := coalesce(line.head, line.token);
    answer := public.holdfast_wait_answer(line, line.token, size::text);
  END IF;
END $$;
