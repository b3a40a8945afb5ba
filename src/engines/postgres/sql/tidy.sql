-- Remove the rows of these lines, if they are empty. The highest of their tokens is kept, as a floor for the next
-- entry: however often a key comes and goes, and whatever the clock does meanwhile, its tokens do not go back. What is
-- locked is in use, and left alone.
CREATE OR REPLACE FUNCTION public.holdfast_tidy(keys text[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  removed integer;
  highest bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '1000', true);
  WITH free AS (
    SELECT l.key FROM public.holdfast_line l
      WHERE l.key = ANY (keys) AND NOT l.crowd AND (l.id IS NULL OR l.expires_at <= clock_timestamp())
      FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM public.holdfast_line l USING free WHERE l.key = free.key RETURNING l.token
  )
  SELECT count(*), max(token) INTO removed, highest FROM gone;
  IF removed > 0 THEN
    UPDATE public.holdfast_meta m SET floor = highest WHERE m.floor < highest;
  END IF;
  RETURN removed;
END $$;

-- The same for what processes that died have left behind, in all lines: not more often than once a minute, however many
-- processes ask.
CREATE OR REPLACE FUNCTION public.holdfast_sweep(engine_id text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
  left_behind text[];
  news json[];
BEGIN
  PERFORM 1 FROM public.holdfast_meta m
    WHERE m.swept_at < now - interval '1 minute' OR m.swept_at > now FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN '0';
  END IF;
  UPDATE public.holdfast_meta m SET swept_at = now;
  left_behind := ARRAY(
    SELECT l.key FROM public.holdfast_line l
      WHERE CASE WHEN l.crowd THEN l.next_expiry <= now ELSE l.id IS NULL OR l.expires_at <= now END LIMIT 10000);
  news := public.holdfast_settle_due(left_behind, engine_id);
  RETURN public.holdfast_tidy(left_behind) || coalesce(E'\n' || to_json(news), '');
END $$;

-- Which of these lines another transaction has locked, as a JSON array.
CREATE OR REPLACE FUNCTION public.holdfast_locked_keys(keys text[])
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  stuck json;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  WITH free AS MATERIALIZED (
    SELECT l.key FROM public.holdfast_line l WHERE l.key = ANY (keys) FOR UPDATE SKIP LOCKED
  )
  SELECT json_agg(l.key) INTO stuck FROM public.holdfast_line l
    WHERE l.key = ANY (keys) AND NOT EXISTS (SELECT FROM free WHERE free.key = l.key);
  RETURN coalesce(stuck, '[]');
END $$;
