-- The rule of the line. As src/core/line.ts says: an entry holds while the sum of weights up to and including it is no
-- more than the smallest limit up to and including it.
--
-- These functions work on a line's row as a value: it is opened (read and locked), changed, and saved once, however
-- many entries of a batch are in it.

-- Before anything else, in every call that changes lines: what they rely on, and how long to wait for a row.
CREATE OR REPLACE FUNCTION public.holdfast_begin_call(row_wait_ms integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  done text;
BEGIN
  -- In a stricter isolation level all statements of a function see one snapshot, and a line could be read as it was
  -- before the wait for its lock.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'transactions are % here', current_setting('transaction_isolation') USING ERRCODE = 'HF001';
  END IF;
  -- One row that another transaction has locked for good must not hold up the calls for all other rows.
  done := set_config('lock_timeout', row_wait_ms::text, true);
  -- A lock that is lost in a crash is a lock that two processes hold.
  IF current_setting('synchronous_commit') = 'off' THEN
    done := set_config('synchronous_commit', 'on', true);
  END IF;
  RETURN done;
END $$;

-- A line as it is now: locked, without what has expired. `was` is the row as it is stored; both are null if there is
-- none.
CREATE OR REPLACE FUNCTION public.holdfast_open_line(
  own_key text, engine_id text, INOUT news json[], OUT line public.holdfast_line, OUT was public.holdfast_line
) LANGUAGE plpgsql AS $$
DECLARE
  settled record;
BEGIN
  SELECT l.* INTO line FROM public.holdfast_line l WHERE l.key = own_key FOR UPDATE;
  was := line;
  IF line.expires_at <= clock_timestamp() THEN
    line.id := NULL;
  END IF;
  IF line.crowd AND line.next_expiry <= clock_timestamp() THEN
    settled := public.holdfast_settle_line(line, news, engine_id);
    line := settled.line;
    news := settled.news;
  END IF;
END $$;

-- Write a line's row, if it has changed.
CREATE OR REPLACE FUNCTION public.holdfast_save_line(line public.holdfast_line, was public.holdfast_line)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF line IS NOT DISTINCT FROM was THEN
    RETURN false;
  END IF;
  UPDATE public.holdfast_line l SET
      token = line.token, id = line.id, holder = line.holder, weight = line.weight, "limit" = line."limit",
      ttl_ms = line.ttl_ms, expires_at = line.expires_at, since = line.since, client = line.client,
      evicted = line.evicted, crowd = line.crowd, held = line.held, held_weight = line.held_weight,
      held_limit = line.held_limit, held_limits = line.held_limits, held_until = line.held_until,
      waiting = line.waiting, head = line.head, next_expiry = line.next_expiry
    WHERE l.key = line.key;
  RETURN true;
END $$;

-- The sums of the line without an entry that goes.
CREATE OR REPLACE FUNCTION public.holdfast_drop_entry(line public.holdfast_line, entry public.holdfast_entry)
RETURNS public.holdfast_line LANGUAGE plpgsql AS $$
BEGIN
  IF entry.removed THEN
    RETURN line;
  END IF;
  IF entry.held_at IS NULL THEN
    line.waiting := line.waiting - 1;
    line.head := nullif(line.head, entry.token);
    RETURN line;
  END IF;
  line.held := line.held - 1;
  line.held_weight := line.held_weight - entry.weight;
  IF entry."limit" = line.held_limit THEN
    line.held_limits := line.held_limits - 1;
  END IF;
  RETURN line;
END $$;

-- The sums of the line with one more that holds.
CREATE OR REPLACE FUNCTION public.holdfast_add_holder(
  line public.holdfast_line, held_token bigint, held_weight integer, held_limit integer
) RETURNS public.holdfast_line LANGUAGE plpgsql AS $$
BEGIN
  IF line.held = 0 OR held_limit < line.held_limit THEN
    line.held_limit := held_limit;
    line.held_limits := 1;
  ELSIF held_limit = line.held_limit THEN
    line.held_limits := line.held_limits + 1;
  END IF;
  line.held := line.held + 1;
  line.held_weight := line.held_weight + held_weight;
  line.held_until := held_token;
  RETURN line;
END $$;

-- Settle a crowd: what has expired goes, and the front gets what it can have. A waiter that begins to hold is told.
-- Expiries stay as they are: a grant never changes one.
CREATE OR REPLACE FUNCTION public.holdfast_settle_line(
  INOUT line public.holdfast_line, INOUT news json[], engine_id text
) LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
  entry public.holdfast_entry;
  first_is_new boolean;
BEGIN
  IF line.next_expiry <= now THEN
    -- All of them first: nothing is granted to an entry that has expired too.
    FOR entry IN DELETE FROM public.holdfast_entry e WHERE e.key = line.key AND e.expires_at <= now RETURNING e.* LOOP
      line := public.holdfast_drop_entry(line, entry);
    END LOOP;
  END IF;
  IF line.next_expiry <= now OR line.held + line.waiting = 0 THEN
    SELECT min(e.expires_at) INTO line.next_expiry FROM public.holdfast_entry e WHERE e.key = line.key;
    line.crowd := line.next_expiry IS NOT NULL;
  END IF;
  IF line.held = 0 THEN
    line.held_limit := NULL;
    line.held_limits := 0;
  ELSIF line.held_limits = 0 THEN
    SELECT e."limit", count(*) INTO line.held_limit, line.held_limits
      FROM public.holdfast_entry e
      WHERE e.key = line.key AND e.token <= line.held_until AND NOT e.removed
      GROUP BY e."limit" ORDER BY e."limit" LIMIT 1;
  END IF;
  first_is_new := line.head IS NULL;
  WHILE line.waiting > 0 LOOP
    IF line.head IS NULL THEN
      line.head := public.holdfast_first_waiter(line.key, line.held_until);
    END IF;
    EXIT WHEN line.held_weight >= line.held_limit;
    -- Where no entry holds, the first can: no weight is above its own limit.
    IF line.held > 0 THEN
      SELECT e.* INTO STRICT entry FROM public.holdfast_entry e WHERE e.key = line.key AND e.token = line.head;
      EXIT WHEN line.held_weight + entry.weight > least(line.held_limit, entry."limit");
    END IF;
    UPDATE public.holdfast_entry e SET held_at = now WHERE e.key = line.key AND e.token = line.head
      RETURNING e.* INTO STRICT entry;
    line := public.holdfast_add_holder(line, entry.token, entry.weight, entry."limit");
    line.waiting := line.waiting - 1;
    line.head := NULL;
    news := public.holdfast_tell_engine(
      news, engine_id, entry.client,
      json_build_array(entry.key, entry.id, entry.token::text, extract(epoch FROM entry.expires_at - now) * 1000));
  END LOOP;
  -- The first waiter has gone. Only the first one looks when holders expire, and the next has to know that it is that.
  IF first_is_new THEN
    news := public.holdfast_tell_first(line, news, engine_id);
  END IF;
END $$;

-- The token of the first waiter: the first entry after the last that holds. Without sorting, only the index of the
-- line's order can tell, and reads one entry; else PostgreSQL, which thinks that lines are short, would read them all.
CREATE OR REPLACE FUNCTION public.holdfast_first_waiter(own_key text, held_until bigint)
RETURNS bigint LANGUAGE plpgsql SET enable_sort = off AS $$
BEGIN
  RETURN (
    SELECT e.token FROM public.holdfast_entry e
      WHERE e.key = own_key AND e.token > held_until AND NOT e.removed ORDER BY e.token LIMIT 1);
END $$;

-- Tell the process of an entry, by a message of the entry's key and id, and
--     its token, and for how long it holds (ms)
--     null if it was evicted
--     nothing more if the process is to look again where the entry stands.
-- If the entry belongs to the calling process (`engine_id`), that goes with the answer, else by a notification.
CREATE OR REPLACE FUNCTION public.holdfast_tell_engine(news json[], engine_id text, its_engine_id text, message json)
RETURNS json[] LANGUAGE plpgsql AS $$
BEGIN
  IF its_engine_id = engine_id THEN
    RETURN news || message;
  END IF;
  IF its_engine_id <> '' THEN
    PERFORM pg_notify('holdfast_' || its_engine_id, message::text);
  END IF;
  RETURN news;
END $$;

-- Tell the process of the first waiter to look again: a holder can expire earlier than that waiter was told, or it was
-- not the first one until now.
CREATE OR REPLACE FUNCTION public.holdfast_tell_first(line public.holdfast_line, news json[], engine_id text)
RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  entry public.holdfast_entry;
BEGIN
  IF line.head IS NULL THEN
    RETURN news;
  END IF;
  SELECT e.* INTO entry FROM public.holdfast_entry e WHERE e.key = line.key AND e.token = line.head;
  RETURN public.holdfast_tell_engine(news, engine_id, entry.client, json_build_array(entry.key, entry.id));
END $$;

-- Make the only entry of a line the first of a crowd.
CREATE OR REPLACE FUNCTION public.holdfast_make_crowd(line public.holdfast_line)
RETURNS public.holdfast_line LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.holdfast_entry (
      key, token, id, holder, weight, "limit", ttl_ms, expires_at, since, held_at, client, evicted)
    VALUES (
      line.key, line.token, line.id, line.holder, line.weight, line."limit", line.ttl_ms, line.expires_at, line.since,
      line.since, line.client, line.evicted);
  line.id := NULL;
  line.crowd := true;
  line.next_expiry := line.expires_at;
  RETURN public.holdfast_add_holder(line, line.token, line.weight, line."limit");
END $$;

-- Renew an entry of an open line, and say where it stands: see sql/enter.sql for the answers. An entry that is to
-- outlive its process is not cut short by a renewal that does not say so again.
CREATE OR REPLACE FUNCTION public.holdfast_renew_entry(
  INOUT line public.holdfast_line, own_id text, ttl bigint, outlives boolean, OUT answer text
) LANGUAGE plpgsql AS $$
DECLARE
  until timestamptz := clock_timestamp() + ttl * interval '1 ms';
  entry public.holdfast_entry;
BEGIN
  answer := 'u';
  IF line.id = own_id THEN
    IF line.evicted THEN
      answer := 'e';
      RETURN;
    END IF;
    line.expires_at := greatest(until, CASE WHEN line.client IS NULL AND NOT outlives THEN line.expires_at END);
    line.ttl_ms := ttl;
    line.client := CASE WHEN NOT outlives THEN line.client END;
    answer := line.token;
    RETURN;
  END IF;
  IF line.crowd IS NOT TRUE THEN
    RETURN;
  END IF;
  UPDATE public.holdfast_entry e SET
      expires_at = greatest(until, CASE WHEN e.client IS NULL AND NOT outlives THEN e.expires_at END), ttl_ms = ttl,
      client = CASE WHEN NOT outlives THEN e.client END
    WHERE e.id = own_id AND e.key || '' = line.key AND NOT e.evicted
    RETURNING e.* INTO entry;
  IF NOT FOUND THEN
    PERFORM 1 FROM public.holdfast_entry e WHERE e.id = own_id AND e.key || '' = line.key;
    answer := CASE WHEN FOUND THEN 'e' ELSE 'u' END;
    RETURN;
  END IF;
  line.next_expiry := least(line.next_expiry, until);
  IF entry.held_at IS NOT NULL THEN
    answer := entry.token;
  ELSE
    answer := public.holdfast_wait_answer(line, entry.token, '');
  END IF;
END $$;

-- Where a waiter stands: `w` for the first in line, and when the next of the holders can expire; `q` for one behind it,
-- and when the first in line can expire (both in ms from now). Should the waiter hear nothing, that is when to look
-- again.
CREATE OR REPLACE FUNCTION public.holdfast_wait_answer(line public.holdfast_line, own_token bigint, ahead text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
  look_at timestamptz;
BEGIN
  IF line.head < own_token THEN
    SELECT e.expires_at INTO look_at FROM public.holdfast_entry e WHERE e.key = line.key AND e.token = line.head;
  ELSE
    SELECT min(e.expires_at) INTO look_at FROM public.holdfast_entry e
      WHERE e.key = line.key AND e.token <= line.held_until AND NOT e.removed;
  END IF;
  RETURN CASE WHEN line.head < own_token THEN 'q:' ELSE 'w:' END || ahead || ':'
    || ceil(greatest(extract(epoch FROM coalesce(look_at, now) - now), 0) * 1000);
END $$;
