-- Records beside the lines: what is stored, and every decision about it.
--
-- A change locks the record first, and then the line of the same key, if it asks who holds it; records and lines in the
-- order of their keys, all records before all lines. Calls that enter, renew and leave lock lines only. So no two calls
-- wait for each other; and one that waits for a record, which a transaction of the user may have locked for long
-- (holdfast_put_in), keeps no line from being renewed.
CREATE TABLE IF NOT EXISTS public.holdfast_record (
  key text COLLATE "C" PRIMARY KEY,
  -- Null for a removal that is remembered.
  value bytea,
  -- That of the last change; 0 in a row that was made only to have something to lock, and that no other call ever sees.
  version bigint NOT NULL,
  mark bigint NOT NULL,
  -- Null: it stays until it is removed. What has expired is nothing; the row has its version until it is swept.
  expires_at timestamptz
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX IF NOT EXISTS holdfast_record_expiry ON public.holdfast_record (expires_at) WHERE expires_at IS NOT NULL;

-- Some pages that stay: see tables.sql.
DO $$
BEGIN
  IF pg_relation_size('public.holdfast_record') > 0 THEN
    RETURN;
  END IF;
  INSERT INTO public.holdfast_record (key, value, version, mark)
    SELECT 'holdfast filling ' || i, convert_to(repeat('.', 1900), 'UTF8'), 0, 0 FROM generate_series(1, 60) i;
  DELETE FROM public.holdfast_record WHERE version = 0;
END $$;

-- For each key what is stored, as a JSON array: the time of the server (ms since 1970), and then for each key null, or
-- the value in hexadecimal digits (null for a removal), version, mark, and for how long it lives (ms; null: for good).
CREATE OR REPLACE FUNCTION public.holdfast_get(keys text[])
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
  found_records json;
BEGIN
  SELECT json_agg(
      (SELECT public.holdfast_found(r, now) FROM public.holdfast_record r
        WHERE r.key = a.key AND (r.expires_at IS NULL OR r.expires_at > now))
      ORDER BY a.i)
    INTO found_records FROM unnest(keys) WITH ORDINALITY AS a(key, i);
  RETURN json_build_array(public.holdfast_time(now), found_records);
END $$;

CREATE OR REPLACE FUNCTION public.holdfast_time(now timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN extract(epoch FROM now) * 1000;
END $$;

-- A record in an answer.
CREATE OR REPLACE FUNCTION public.holdfast_found(r public.holdfast_record, now timestamptz)
RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  RETURN json_build_array(
    encode(r.value, 'hex'), r.version::text, r.mark::text,
    CASE WHEN r.value IS NOT NULL THEN extract(epoch FROM r.expires_at - now) * 1000 END);
END $$;

-- Make changes, in the order of the arrays, each if its conditions are met. `vals` are hexadecimal digits, null for a
-- removal; `entries`, who has to hold the line of the key. What is null in the other arrays is not asked for. The
-- answer is a JSON array: the time, and for each change
--     ["stored", version, mark]
--     [the first condition that is not met, what is stored (see holdfast_get), or null]
CREATE OR REPLACE FUNCTION public.holdfast_put(
  keys text[], vals text[], ttls bigint[], marks bigint[], entries text[], absents boolean[], versions bigint[],
  marks_below bigint[], row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  own_key text;
  answers json[];
  refused integer := 0;
BEGIN
  FOR own_key IN SELECT DISTINCT a.key COLLATE "C" FROM unnest(keys) AS a(key) ORDER BY 1 LOOP
    PERFORM public.holdfast_lock_record(own_key);
  END LOOP;
  PERFORM 1 FROM public.holdfast_line l
    WHERE l.key = ANY (ARRAY(SELECT a.key FROM unnest(keys, entries) AS a(key, id) WHERE a.id IS NOT NULL))
    ORDER BY l.key FOR NO KEY UPDATE;
  FOR i IN 1 .. cardinality(keys) LOOP
    answers[i] := public.holdfast_put_record(
      keys[i], vals[i], ttls[i], marks[i], entries[i], absents[i], versions[i], marks_below[i], NULL, NULL, NULL);
    refused := refused + (answers[i]->>0 <> 'stored')::integer;
  END LOOP;
  IF refused > 0 THEN
    DELETE FROM public.holdfast_record r WHERE r.key = ANY (keys) AND r.version = 0;
  END IF;
  IF refused = cardinality(keys) THEN
    -- Nothing was changed that a crash could lose.
    prepared := set_config('synchronous_commit', 'off', true);
  END IF;
  RETURN json_build_array(public.holdfast_time(clock_timestamp()), to_json(answers));
END $$;

-- Make one change inside a transaction of the user, which ends when the user wants. The record stays locked until then.
-- The line does not: it has to be renewed meanwhile. So the next holder may come while the transaction is open. Its
-- first change of the record waits for the end of the transaction, and finds what was committed.
--
-- In `repeatable read` and above a transaction sees lines as they were when it began. There the answer is ["strict"],
-- and the caller asks again with what a transaction of its own has seen by holdfast_facts: `holds`, `is_empty` and
-- `lowest`. What other calls have put since the transaction began makes this one fail with 40001, as it makes any
-- statement of such a transaction.
CREATE OR REPLACE FUNCTION public.holdfast_put_in(
  own_key text, own_value text, ttl bigint, own_mark bigint, own_id text, absent boolean, own_version bigint,
  mark_below bigint, holds boolean, is_empty boolean, lowest bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  is_fixed boolean := current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted');
  wait_before text := current_setting('lock_timeout');
  r public.holdfast_record;
  fresh boolean;
  answer json;
BEGIN
  IF is_fixed AND lowest IS NULL THEN
    RETURN json_build_array(NULL, json_build_array(json_build_array('strict')));
  END IF;
  IF NOT is_fixed OR (own_id IS NOT NULL AND NOT holds) THEN
    -- A change that is refused leaves nothing locked for the rest of the transaction.
    SELECT * INTO r FROM public.holdfast_record WHERE key = own_key;
    answer := public.holdfast_refusal(r, clock_timestamp(), own_key, own_id, absent, own_version, mark_below, holds);
  END IF;
  IF answer IS NULL THEN
    IF wait_before = '0' THEN
      PERFORM set_config('lock_timeout', '5s', true);
    END IF;
    fresh := public.holdfast_lock_record(own_key);
    PERFORM set_config('lock_timeout', wait_before, true);
    answer := public.holdfast_put_record(
      own_key, own_value, ttl, own_mark, own_id, absent, own_version, mark_below, holds, is_empty, lowest);
    IF fresh AND answer->>0 <> 'stored' THEN
      DELETE FROM public.holdfast_record WHERE key = own_key;
    END IF;
  END IF;
  RETURN json_build_array(public.holdfast_time(clock_timestamp()), json_build_array(answer));
END $$;

-- What holdfast_put_in cannot see: whether that entry holds the line, whether the line is empty, and the lowest
-- version of a new record.
CREATE OR REPLACE FUNCTION public.holdfast_facts(own_key text, own_id text)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN json_build_array(
    public.holdfast_holds(own_key, own_id), public.holdfast_is_empty(own_key),
    (SELECT m.floor::text FROM public.holdfast_meta m));
END $$;

-- Lock a record, also one that is not there: then a row is made, and the answer is true.
CREATE OR REPLACE FUNCTION public.holdfast_lock_record(own_key text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM 1 FROM public.holdfast_record r WHERE r.key = own_key FOR NO KEY UPDATE;
    IF FOUND THEN
      RETURN false;
    END IF;
    INSERT INTO public.holdfast_record (key, version, mark) VALUES (own_key, 0, 0) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN true;
    END IF;
  END LOOP;
END $$;

-- Make one change of a record that is locked, if its conditions are met. `holds`, `is_empty` and `lowest` are null
-- where this transaction can see them itself.
CREATE OR REPLACE FUNCTION public.holdfast_put_record(
  own_key text, own_value text, ttl bigint, own_mark bigint, own_id text, absent boolean, own_version bigint,
  mark_below bigint, holds boolean, is_empty boolean, lowest bigint
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
  now_us bigint := extract(epoch FROM now) * 1000000;
  until timestamptz;
  r public.holdfast_record;
  answer json;
BEGIN
  SELECT * INTO STRICT r FROM public.holdfast_record WHERE key = own_key;
  answer := public.holdfast_refusal(r, now, own_key, own_id, absent, own_version, mark_below, holds);
  IF answer IS NOT NULL THEN
    RETURN answer;
  END IF;
  IF r.version = 0 THEN
    -- Read after the row was made: a sweep that has removed the row before it has raised the floor.
    r.version := coalesce(lowest, (SELECT m.floor FROM public.holdfast_meta m));
  END IF;
  r.version := greatest(r.version + 1, now_us);
  r.mark := CASE
    WHEN own_value IS NULL THEN 0
    WHEN r.expires_at <= now THEN coalesce(own_mark, 0)
    ELSE greatest(r.mark, own_mark) END;
  -- Not beyond the times that the server knows.
  until := now + CASE
    WHEN ttl < 100 * 31557600000 THEN ttl * interval '1 ms' WHEN ttl IS NOT NULL THEN interval '100 years' END;
  IF own_value IS NULL THEN
    -- A holder that has found what is removed now is refused for a day (TOMBSTONE_MS). In an empty line there is none.
    until := now + CASE
      WHEN coalesce(is_empty, public.holdfast_is_empty(own_key)) THEN interval '0' ELSE interval '1 day' END;
  END IF;
  UPDATE public.holdfast_record SET
      value = decode(own_value, 'hex'), version = r.version, mark = r.mark, expires_at = until
    WHERE key = own_key;
  RETURN json_build_array('stored', r.version::text, r.mark::text);
END $$;

-- The answer to a change whose conditions are not met; null if they are.
CREATE OR REPLACE FUNCTION public.holdfast_refusal(
  r public.holdfast_record, now timestamptz, own_key text, own_id text, absent boolean, own_version bigint,
  mark_below bigint, holds boolean
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  is_there boolean := r.version > 0 AND (r.expires_at IS NULL OR r.expires_at > now);
  refused_by text;
BEGIN
  refused_by := CASE
    WHEN own_id IS NOT NULL AND NOT coalesce(holds, public.holdfast_holds(own_key, own_id)) THEN 'holding'
    WHEN absent AND is_there AND r.value IS NOT NULL THEN 'absent'
    WHEN own_version <> CASE WHEN is_there THEN r.version ELSE 0 END THEN 'version'
    WHEN mark_below <= CASE WHEN is_there THEN r.mark ELSE 0 END THEN 'markBelow' END;
  IF refused_by IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN json_build_array(refused_by, CASE WHEN is_there THEN public.holdfast_found(r, now) END);
END $$;

-- Whether an entry holds the line.
CREATE OR REPLACE FUNCTION public.holdfast_holds(own_key text, own_id text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
BEGIN
  RETURN EXISTS (
      SELECT FROM public.holdfast_line l WHERE l.key = own_key AND l.id = own_id AND l.expires_at > now)
    OR EXISTS (
      SELECT FROM public.holdfast_entry e
        WHERE e.id = own_id AND e.key || '' = own_key AND e.held_at IS NOT NULL AND NOT e.removed
          AND e.expires_at > now);
END $$;

CREATE OR REPLACE FUNCTION public.holdfast_is_empty(own_key text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
BEGIN
  RETURN NOT EXISTS (
      SELECT FROM public.holdfast_line l WHERE l.key = own_key AND l.id IS NOT NULL AND l.expires_at > now)
    AND NOT EXISTS (
      SELECT FROM public.holdfast_entry e WHERE e.key = own_key AND NOT e.removed AND e.expires_at > now);
END $$;

-- A page of records from a key on, as a JSON array: key, bytes, version, mark, and for how long it lives (ms). Also
-- what is nothing, with null bytes: the last of the page says where the next page begins.
CREATE OR REPLACE FUNCTION public.holdfast_records(first_key text, after_it boolean, most integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
  page json;
BEGIN
  SELECT json_agg(json_build_array(
      r.key, CASE WHEN r.expires_at IS NULL OR r.expires_at > now THEN octet_length(r.value) END, r.version::text,
      r.mark::text, extract(epoch FROM r.expires_at - now) * 1000) ORDER BY r.key)
    INTO page FROM (
      SELECT * FROM public.holdfast_record WHERE key >= first_key AND (NOT after_it OR key <> first_key)
        ORDER BY key LIMIT most) r;
  RETURN coalesce(page, '[]');
END $$;

-- Remove rows of records that have expired: not more than `most`, and how many is the answer. The highest of their
-- versions is kept, as that of lines is (tidy.sql). What is locked is in use, and left alone; so is all, while another
-- process is clearing away.
CREATE OR REPLACE FUNCTION public.holdfast_forget(most integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  removed integer;
  highest bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM 1 FROM public.holdfast_meta m FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN '0';
  END IF;
  WITH expired AS (
    SELECT r.key FROM public.holdfast_record r WHERE r.expires_at <= clock_timestamp()
      ORDER BY r.expires_at LIMIT most FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM public.holdfast_record r USING expired WHERE r.key = expired.key RETURNING r.version
  )
  SELECT count(*), max(version) INTO removed, highest FROM gone;
  IF removed > 0 THEN
    UPDATE public.holdfast_meta m SET floor = highest WHERE m.floor < highest;
  END IF;
  RETURN removed;
END $$;
