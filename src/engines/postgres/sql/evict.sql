-- Take an entry of any process out, named by its token: a waiter now, a holder now if `at_once`, else when it expires
-- or leaves. Its process is told. Until it would have expired it is remembered, so that its owner hears why.
CREATE OR REPLACE FUNCTION public.holdfast_evict(
  own_key text, named bigint, at_once boolean, engine_id text, row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  line public.holdfast_line;
  entry public.holdfast_entry;
  opened record;
  settled record;
  news json[];
  found_it boolean := false;
  saved boolean;
BEGIN
  opened := public.holdfast_open_line(own_key, engine_id, news);
  line := opened.line;
  news := opened.news;
  IF line.id IS NOT NULL AND line.token = named THEN
    IF at_once THEN
      line := public.holdfast_make_crowd(line);
    ELSE
      line.evicted := true;
      found_it := true;
      news := public.holdfast_tell_engine(news, engine_id, line.client, json_build_array(line.key, line.id, NULL));
    END IF;
  END IF;
  IF line.crowd THEN
    SELECT e.* INTO entry FROM public.holdfast_entry e WHERE e.key = own_key AND e.token = named AND NOT e.removed;
    found_it := FOUND;
  END IF;
  IF line.crowd AND found_it THEN
    news := public.holdfast_tell_engine(news, engine_id, entry.client, json_build_array(entry.key, entry.id, NULL));
    -- A waiter holds nothing that it would have to stop first.
    IF at_once OR entry.held_at IS NULL THEN
      UPDATE public.holdfast_entry e SET evicted = true, removed = true WHERE e.key = own_key AND e.token = named;
      settled := public.holdfast_settle_line(public.holdfast_drop_entry(line, entry), news, engine_id);
      line := settled.line;
      news := settled.news;
    ELSE
      UPDATE public.holdfast_entry e SET evicted = true WHERE e.key = own_key AND e.token = named;
    END IF;
  END IF;
  saved := public.holdfast_save_line(line, opened.was);
  RETURN found_it::integer || coalesce(E'\n' || to_json(news), '');
END $$;
