-- What is stored of pools, and what is done with their rows: take back what has lapsed, move units, note what is
-- wanted, show. The rule that calls these functions is in pools.sql. It has locked the pool before.

CREATE TABLE IF NOT EXISTS public.holdfast_pool (
  key text COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE IF NOT EXISTS public.holdfast_pool_item (
  key text COLLATE "C" NOT NULL,
  item text COLLATE "C" NOT NULL,
  stock bigint NOT NULL,
  sold bigint NOT NULL,
  -- What has lapsed and was not taken back included.
  held bigint NOT NULL,
  -- The id of the first in line, that wants this item; '' if none does.
  wanted_by text NOT NULL,
  wanted_until timestamptz NOT NULL,
  PRIMARY KEY (key, item)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE IF NOT EXISTS public.holdfast_pool_hold (
  key text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  -- held, sold, or changed: the id of a change of the stock.
  state text NOT NULL,
  -- Item and quantity by turns, separated by line feeds.
  lines text NOT NULL,
  -- When it lapses, or is forgotten.
  at timestamptz NOT NULL,
  PRIMARY KEY (key, id)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX IF NOT EXISTS holdfast_pool_lapses ON public.holdfast_pool_hold (key, at) WHERE state = 'held';
CREATE INDEX IF NOT EXISTS holdfast_pool_forgets ON public.holdfast_pool_hold (at) WHERE state <> 'held';

-- Some pages that stay: see tables.sql.
DO $$
BEGIN
  IF pg_relation_size('public.holdfast_pool_hold') > 0 THEN
    RETURN;
  END IF;
  INSERT INTO public.holdfast_pool (key)
    SELECT 'holdfast filling ' || i || repeat('.', 1900) FROM generate_series(1, 60) i;
  INSERT INTO public.holdfast_pool_item (key, item, stock, sold, held, wanted_by, wanted_until)
    SELECT 'holdfast filling', i, 0, 0, 0, repeat('.', 1900), '-infinity' FROM generate_series(1, 60) i;
  INSERT INTO public.holdfast_pool_hold (key, id, state, lines, at)
    SELECT 'holdfast filling', i, 'held', repeat('.', 1900), '-infinity' FROM generate_series(1, 60) i;
  DELETE FROM public.holdfast_pool WHERE key LIKE 'holdfast filling %';
  DELETE FROM public.holdfast_pool_item WHERE key = 'holdfast filling';
  DELETE FROM public.holdfast_pool_hold WHERE key = 'holdfast filling';
END $$;

-- Take back a hundred holds that have lapsed: their units are there again. True: there may be more.
CREATE OR REPLACE FUNCTION public.holdfast_take_back(own_key text, now timestamptz)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  taken integer;
  their_lines text;
BEGIN
  -- Nearly always there are none, and to look is cheaper than to remove nothing.
  PERFORM 1 FROM public.holdfast_pool_hold l WHERE l.key = own_key AND l.state = 'held' AND l.at <= now LIMIT 1;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  WITH lapsed AS (
    DELETE FROM public.holdfast_pool_hold h
      WHERE h.key = own_key AND h.id = ANY (ARRAY(
        SELECT l.id FROM public.holdfast_pool_hold l
          WHERE l.key = own_key AND l.state = 'held' AND l.at <= now ORDER BY l.at LIMIT 100))
      RETURNING h.lines
  )
  SELECT count(*), string_agg(l.lines, E'\n') INTO taken, their_lines FROM lapsed l;
  IF taken > 0 THEN
    PERFORM public.holdfast_pool_move(own_key, their_lines, -1, 0);
  END IF;
  RETURN taken = 100;
END $$;

-- So many times the units of these lines are held, and sold, than were before.
CREATE OR REPLACE FUNCTION public.holdfast_pool_move(own_key text, own_lines text, to_held integer, to_sold integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  words text[] := string_to_array(own_lines, E'\n');
  line record;
BEGIN
  IF cardinality(words) = 2 THEN
    UPDATE public.holdfast_pool_item i
      SET held = i.held + to_held * words[2]::bigint, sold = i.sold + to_sold * words[2]::bigint
      WHERE i.key = own_key AND i.item = words[1];
    RETURN;
  END IF;
  FOR line IN
    SELECT words[n] AS item, sum(words[n + 1]::bigint)::bigint AS quantity
      FROM generate_series(1, cardinality(words), 2) n GROUP BY 1
  LOOP
    UPDATE public.holdfast_pool_item i
      SET held = i.held + to_held * line.quantity, sold = i.sold + to_sold * line.quantity
      WHERE i.key = own_key AND i.item = line.item;
  END LOOP;
END $$;

-- The items of these lines are wanted by `new_id`; if `old_id` is not null, then only those that it wants.
CREATE OR REPLACE FUNCTION public.holdfast_pool_want(
  own_key text, words text[], old_id text, new_id text, until timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR n IN 1 .. cardinality(words) BY 2 LOOP
    UPDATE public.holdfast_pool_item i SET wanted_by = new_id, wanted_until = until
      WHERE i.key = own_key AND i.item = words[n] AND (old_id IS NULL OR i.wanted_by = old_id)
        AND (i.wanted_by <> '' OR new_id <> '');
  END LOOP;
END $$;

-- 1 if an id that is the first in line wants one of these items, else 0.
CREATE OR REPLACE FUNCTION public.holdfast_is_wanted(own_key text, words text[], now timestamptz)
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  FOR n IN 1 .. cardinality(words) BY 2 LOOP
    PERFORM 1 FROM public.holdfast_pool_item i
      WHERE i.key = own_key AND i.item = words[n] AND i.wanted_by <> ''
        AND i.wanted_until > now AND i.wanted_until <= now + interval '1 min';
    IF FOUND THEN
      RETURN 1;
    END IF;
  END LOOP;
  RETURN 0;
END $$;

-- When the next hold lapses (ms), or -1.
CREATE OR REPLACE FUNCTION public.holdfast_next_lapse(own_key text, now timestamptz)
RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
  next_at timestamptz;
BEGIN
  SELECT h.at INTO next_at FROM public.holdfast_pool_hold h
    WHERE h.key = own_key AND h.state = 'held' ORDER BY h.at LIMIT 1;
  RETURN CASE WHEN next_at IS NULL THEN -1 ELSE greatest(0, extract(epoch FROM next_at - now) * 1000) END;
END $$;

CREATE OR REPLACE FUNCTION public.holdfast_pool_show(own_key text, now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  items text;
  holds bigint;
BEGIN
  WHILE public.holdfast_take_back(own_key, now) LOOP
  END LOOP;
  SELECT string_agg(concat_ws(E'\n', i.item, i.stock, i.sold, i.held), E'\n') INTO items
    FROM public.holdfast_pool_item i WHERE i.key = own_key;
  SELECT count(*) INTO holds FROM public.holdfast_pool_hold h WHERE h.key = own_key AND h.state = 'held';
  RETURN concat_ws(E'\t', 'pool', coalesce(items, ''), public.holdfast_next_lapse(own_key, now), holds);
END $$;
