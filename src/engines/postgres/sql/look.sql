-- Look at a line: a JSON array of its entries, the holders first, each as an array: id, holder, whether it holds,
-- token, weight, limit, ttl, the times (ms) until it expires, since it entered, since it holds, and whether it was
-- evicted. A line whose time has come is settled first, unless another transaction has locked it.
CREATE OR REPLACE FUNCTION public.holdfast_inspect(own_key text, engine_id text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  -- First the time, then what is due by then: else an entry that expires in between would be neither there nor
  -- replaced.
  now timestamptz := clock_timestamp();
  news json[] := public.holdfast_settle_due(ARRAY[own_key], engine_id);
  entries json;
BEGIN
  WITH entries AS (
    SELECT l.id, l.holder, true AS holds, l.token, l.weight, l."limit", l.ttl_ms, l.expires_at, l.since,
        l.since AS held_at, l.evicted
      FROM public.holdfast_line l WHERE l.key = own_key AND l.id IS NOT NULL AND l.expires_at > now
    UNION ALL
    SELECT e.id, e.holder, e.held_at IS NOT NULL, e.token, e.weight, e."limit", e.ttl_ms, e.expires_at, e.since,
        e.held_at, e.evicted
      FROM public.holdfast_entry e WHERE e.key = own_key AND NOT e.removed AND e.expires_at > now
  )
  SELECT json_agg(json_build_array(e.id, e.holder, e.holds, e.token::text, e.weight, e."limit", e.ttl_ms,
      extract(epoch FROM e.expires_at - now) * 1000, extract(epoch FROM now - e.since) * 1000,
      extract(epoch FROM now - e.held_at) * 1000, e.evicted)
      ORDER BY e.token)
    INTO entries FROM entries e;
  IF entries IS NULL AND NOT current_setting('transaction_read_only')::boolean THEN
    -- The line is empty: its row can go, unless another process is clearing away.
    PERFORM 1 FROM public.holdfast_meta m FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      PERFORM public.holdfast_tidy(ARRAY[own_key]);
    END IF;
  END IF;
  RETURN coalesce(entries, '[]') || coalesce(E'\n' || to_json(news), '');
END $$;

-- A page of lines from a key on, as a JSON array: key, how many hold, how many wait. Also empty ones: the last of the
-- page says where the next page begins.
CREATE OR REPLACE FUNCTION public.holdfast_list(first_key text, after_it boolean, most integer, engine_id text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  page text[] := ARRAY(
    SELECT l.key FROM public.holdfast_line l WHERE l.key >= first_key AND (NOT after_it OR l.key <> first_key)
      ORDER BY l.key LIMIT most);
  news json[] := public.holdfast_settle_due(page, engine_id);
  now timestamptz := clock_timestamp();
  lines json;
BEGIN
  SELECT json_agg(json_build_array(
      l.key, l.held + CASE WHEN l.id IS NOT NULL AND l.expires_at > now THEN 1 ELSE 0 END, l.waiting) ORDER BY l.key)
    INTO lines FROM public.holdfast_line l WHERE l.key = ANY (page);
  RETURN coalesce(lines, '[]') || coalesce(E'\n' || to_json(news), '');
END $$;

-- Settle those of the lines whose time has come; a replica cannot, and leaves it to calls on the primary.
CREATE OR REPLACE FUNCTION public.holdfast_settle_due(keys text[], engine_id text)
RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  line public.holdfast_line;
  settled record;
  news json[];
  saved boolean;
BEGIN
  IF current_setting('transaction_read_only')::boolean THEN
    RETURN NULL;
  END IF;
  FOR line IN
    SELECT l.* FROM public.holdfast_line l WHERE l.key = ANY (keys) AND l.crowd AND l.next_expiry <= clock_timestamp()
      ORDER BY l.key FOR UPDATE SKIP LOCKED
  LOOP
    settled := public.holdfast_settle_line(line, news, engine_id);
    news := settled.news;
    saved := public.holdfast_save_line(settled.line, line);
  END LOOP;
  RETURN news;
END $$;
