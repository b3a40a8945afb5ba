-- What is stored.
--
-- A line has one row. While one entry is alone in it, which is nearly always, that entry is in the row itself, and
-- entering, renewing and leaving are one update each, in place. With a second one the line is a *crowd*: its entries
-- are rows of their own, and the line's row has their sums, so that nothing ever walks a line. A call that changes a
-- line has locked its row; entries are touched only under that lock, and lines are locked in the order of their keys.
--
-- Times are the server's, by clock_timestamp(): now() would be the time at which a transaction began to wait for a
-- lock.
DO $$
BEGIN
  -- Keys are any Unicode; another encoding could not store all of them.
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION 'this database is encoded in %', current_setting('server_encoding') USING ERRCODE = 'HF003';
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS public.holdfast_meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  format integer NOT NULL,
  -- No line whose row was removed has had a token above this one.
  floor bigint NOT NULL,
  swept_at timestamptz NOT NULL
);

INSERT INTO public.holdfast_meta (format, floor, swept_at) VALUES (1, 0, clock_timestamp()) ON CONFLICT DO NOTHING;

DO $$
BEGIN
  IF (SELECT format FROM public.holdfast_meta) > 1 THEN
    RAISE EXCEPTION 'public.holdfast_meta has format %', (SELECT format FROM public.holdfast_meta)
      USING ERRCODE = 'HF002';
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS public.holdfast_line (
  key text COLLATE "C" PRIMARY KEY,
  -- The last token of this line; it outlives the entry that has it, for as long as the row stays.
  token bigint NOT NULL,

  -- The only entry, if there is one and the line is no crowd: then `token` is its own.
  id text,
  holder text,
  weight integer,
  "limit" integer,
  ttl_ms bigint,
  expires_at timestamptz,
  since timestamptz,
  -- The id of the engine object that hears of the entry (`engineId`, by which its channel is called), and so of a
  -- process; '' if it cannot listen. (To rename the column would lock out older versions.) Null for an entry that is to
  -- outlive its process: that process waits for nothing. A plain renewal that was sent before and comes late does not
  -- cut such an entry short.
  client text,
  evicted boolean NOT NULL DEFAULT false,

  -- There are entries of this line, or traces of evicted ones.
  crowd boolean NOT NULL DEFAULT false,
  held integer NOT NULL DEFAULT 0,
  held_weight bigint NOT NULL DEFAULT 0,
  -- The smallest limit of the holders, and how many of them have it.
  held_limit integer,
  held_limits integer NOT NULL DEFAULT 0,
  -- The token of the last that holds: the holders are the front of the line.
  held_until bigint NOT NULL DEFAULT 0,
  waiting integer NOT NULL DEFAULT 0,
  -- The token of the first waiter.
  head bigint,
  -- Nothing in the crowd expires before this.
  next_expiry timestamptz
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE IF NOT EXISTS public.holdfast_entry (
  key text COLLATE "C" NOT NULL,
  token bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  holder text NOT NULL,
  weight integer NOT NULL,
  "limit" integer NOT NULL,
  ttl_ms bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  since timestamptz NOT NULL,
  -- Since when it holds; null while it waits.
  held_at timestamptz,
  client text,
  -- Its renewals are refused.
  evicted boolean NOT NULL DEFAULT false,
  -- It is out of the line, and only remembered until it would have expired, so that its owner hears why.
  removed boolean NOT NULL DEFAULT false,
  PRIMARY KEY (key, token)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX IF NOT EXISTS holdfast_entry_id ON public.holdfast_entry (id);

-- A function keeps its plans, whatever becomes of the tables. So for each question there is one index that can answer
-- it: that of the line's order, or that of ids. (Where an entry is looked for by its id, `key || ''` keeps the other
-- one out.) And PostgreSQL reads a small table from end to end. Both are therefore given some pages that stay, by rows
-- that come and go here.
DO $$
BEGIN
  IF pg_relation_size('public.holdfast_line') > 20 * 8192 THEN
    RETURN;
  END IF;
  INSERT INTO public.holdfast_line (key, token, holder)
    SELECT 'holdfast filling ' || i, 0, repeat('.', 1900) FROM generate_series(1, 60) i ON CONFLICT DO NOTHING;
  INSERT INTO public.holdfast_entry (key, token, id, holder, weight, "limit", ttl_ms, expires_at, since, client)
    SELECT 'holdfast filling', i, i, repeat('.', 1900), 1, 1, 0, clock_timestamp(), clock_timestamp(), ''
      FROM generate_series(1, 60) i ON CONFLICT DO NOTHING;
  DELETE FROM public.holdfast_line l WHERE l.id IS NULL AND l.holder = repeat('.', 1900);
  DELETE FROM public.holdfast_entry e WHERE e.holder = repeat('.', 1900);
END $$;
