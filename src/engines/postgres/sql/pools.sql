-- Pools: stock of which parts are held for a while. The rule is core/pool-rule.ts, and this is the same in
-- PL/pgSQL, step by step, under the same names. What is stored is in pool_rows.sql.
--
-- A call locks the rows of its pools, in the order of their keys, before it reads the clock and anything else. What
-- belongs to a pool is changed under that lock only, except for ids that are to be forgotten: those count for nothing.

-- Steps, in the order of the arrays. `pools` are the keys of all, once each, in their order, and `places` says which of
-- them a step is about. The answer is a JSON array with a text for each step: four words with tabs between them, as in
-- engines/shared/pool-codec.ts.
CREATE OR REPLACE FUNCTION public.holdfast_hold(
  pools text[], places integer[], verbs text[], ids text[], all_lines text[], mss bigint[], want_mss bigint[],
  flags boolean[], row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  now timestamptz;
  answers text[];
  is_fresh boolean := false;
  matters boolean := false;
BEGIN
  FOR i IN 1 .. cardinality(pools) LOOP
    LOOP
      PERFORM 1 FROM public.holdfast_pool p WHERE p.key = pools[i] FOR NO KEY UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO public.holdfast_pool (key) VALUES (pools[i]) ON CONFLICT DO NOTHING;
      is_fresh := true;
    END LOOP;
  END LOOP;
  now := clock_timestamp();
  IF cardinality(places) = 1 AND want_mss[1] = 0 AND NOT flags[1] THEN
    answers[1] := public.holdfast_usual_step(
      pools[1], verbs[1], ids[1], all_lines[1], mss[1] * interval '1 ms', now);
    matters := answers[1] IS NOT NULL;
  END IF;
  IF NOT matters THEN
    FOR i IN 1 .. cardinality(pools) LOOP
      PERFORM public.holdfast_take_back(pools[i], now);
    END LOOP;
    FOR i IN 1 .. cardinality(places) LOOP
      answers[i] := public.holdfast_pool_step(
        pools[places[i]], verbs[i], ids[i], all_lines[i], mss[i] * interval '1 ms', want_mss[i] * interval '1 ms',
        flags[i], now);
      matters := matters OR (verbs[i] <> 'find' AND answers[i] ~ '^(held|sold|cancelled|changed)');
    END LOOP;
  END IF;
  IF is_fresh THEN
    DELETE FROM public.holdfast_pool p
      WHERE p.key = ANY (pools) AND NOT EXISTS (SELECT FROM public.holdfast_pool_item i WHERE i.key = p.key);
  END IF;
  IF NOT matters THEN
    -- Nothing was changed that a crash could lose.
    prepared := set_config('synchronous_commit', 'off', true);
  END IF;
  -- Ids that are to be forgotten, of all pools: more than these steps can remember. Last, since no row is waited for
  -- after this: of two calls that clear away each other's, none waits for the other.
  -- The oldest one is looked at: its index is the only good way to that. Without the order, and before the table was
  -- ever analyzed, PostgreSQL reads all of the table instead.
  IF (SELECT f.at FROM public.holdfast_pool_hold f WHERE f.state <> 'held' ORDER BY f.at LIMIT 1) <= now THEN
    DELETE FROM public.holdfast_pool_hold h WHERE h.ctid = ANY (ARRAY(
      SELECT f.ctid FROM public.holdfast_pool_hold f WHERE f.state <> 'held' AND f.at <= now
        ORDER BY f.at LIMIT 10 * cardinality(places) FOR UPDATE SKIP LOCKED));
  END IF;
  RETURN to_json(answers);
END $$;

-- The usual steps, by a short way: about one item, one that reserves what is there for all, or confirms what is held.
-- Where anything is not as usual, the answer is null, nothing was changed, and the rest of the rule follows: so this is
-- a part of it that can be left out.
CREATE OR REPLACE FUNCTION public.holdfast_usual_step(
  own_key text, verb text, own_id text, own_lines text, life interval, now timestamptz
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  known public.holdfast_pool_hold;
  words text[];
  quantity bigint;
BEGIN
  IF verb NOT IN ('reserve', 'confirm') THEN
    RETURN NULL;
  END IF;
  SELECT * INTO known FROM public.holdfast_pool_hold h WHERE h.key = own_key AND h.id = own_id;
  words := string_to_array(CASE verb WHEN 'reserve' THEN own_lines ELSE known.lines END, E'\n');
  IF FOUND <> (verb = 'confirm') OR cardinality(words) <> 2 THEN
    RETURN NULL;
  END IF;
  quantity := words[2];
  IF verb = 'confirm' THEN
    IF known.state <> 'held' OR known.at <= now THEN
      RETURN NULL;
    END IF;
    UPDATE public.holdfast_pool_item i SET held = i.held - quantity, sold = i.sold + quantity
      WHERE i.key = own_key AND i.item = words[1];
    UPDATE public.holdfast_pool_hold h SET state = 'sold', at = now + life WHERE h.key = own_key AND h.id = own_id;
    RETURN E'sold\t' || known.lines;
  END IF;
  -- What has lapsed is to be taken back.
  PERFORM 1 FROM public.holdfast_pool_hold l WHERE l.key = own_key AND l.state = 'held' AND l.at <= now LIMIT 1;
  IF FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE public.holdfast_pool_item i SET held = i.held + quantity
    WHERE i.key = own_key AND i.item = words[1] AND i.stock - i.sold - i.held >= quantity AND i.wanted_by = '';
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO public.holdfast_pool_hold VALUES (own_key, own_id, 'held', own_lines, now + life);
  RETURN concat_ws(E'\t', 'held', own_lines, extract(epoch FROM life) * 1000);
END $$;

-- One step on a pool that is locked.
CREATE OR REPLACE FUNCTION public.holdfast_pool_step(
  own_key text, verb text, own_id text, own_lines text, life interval, want interval, flag boolean, now timestamptz
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  known public.holdfast_pool_hold;
  lacking text;
  is_known boolean;
  is_first boolean := want > interval '0';
  words text[] := string_to_array(own_lines, E'\n');
BEGIN
  IF verb = 'show' THEN
    RETURN public.holdfast_pool_show(own_key, now);
  END IF;
  IF verb = 'unwant' THEN
    PERFORM public.holdfast_pool_want(own_key, words, own_id, '', '-infinity');
    RETURN 'gone';
  END IF;
  SELECT * INTO known FROM public.holdfast_pool_hold h WHERE h.key = own_key AND h.id = own_id;
  is_known := known.at > now;
  IF NOT is_known THEN
    -- What is due is gone, and given back if it was held.
    DELETE FROM public.holdfast_pool_hold h WHERE h.key = own_key AND h.id = own_id;
    IF known.state = 'held' THEN
      PERFORM public.holdfast_pool_move(own_key, known.lines, -1, 0);
    END IF;
  END IF;
  is_known := is_known IS TRUE;

  IF verb = 'reserve' THEN
    IF is_known AND known.lines <> own_lines THEN
      RETURN E'differs\t' || known.lines;
    END IF;
    IF NOT is_known THEN
      lacking := public.holdfast_pool_lacks(
        own_key, CASE WHEN is_first THEN 'first' ELSE verb END, own_id, words, flag, now);
      IF lacking IS NOT NULL THEN
        IF is_first THEN
          PERFORM public.holdfast_pool_want(own_key, words, NULL, own_id, now + want);
        END IF;
        RETURN lacking;
      END IF;
      PERFORM public.holdfast_pool_move(own_key, own_lines, 1, 0);
      PERFORM public.holdfast_pool_want(
        own_key, words, CASE WHEN is_first THEN NULL ELSE own_id END, '', '-infinity');
      INSERT INTO public.holdfast_pool_hold VALUES (own_key, own_id, 'held', own_lines, now + life);
      RETURN concat_ws(E'\t', 'held', own_lines, extract(epoch FROM life) * 1000);
    END IF;
  ELSIF verb = 'extend' AND is_known AND known.state = 'held' AND known.at < now + life THEN
    known.at := now + life;
    UPDATE public.holdfast_pool_hold h SET at = known.at WHERE h.key = own_key AND h.id = own_id;
  ELSIF verb = 'confirm' AND (NOT is_known OR known.state = 'held') THEN
    IF is_known THEN
      PERFORM public.holdfast_pool_move(own_key, known.lines, -1, 1);
      UPDATE public.holdfast_pool_hold h SET state = 'sold', at = now + life WHERE h.key = own_key AND h.id = own_id;
      RETURN E'sold\t' || known.lines;
    END IF;
    -- The buyer has paid: it goes before those that wait.
    IF NOT flag OR public.holdfast_pool_lacks(own_key, verb, own_id, words, flag, now) IS NOT NULL THEN
      RETURN 'gone';
    END IF;
    PERFORM public.holdfast_pool_move(own_key, own_lines, 0, 1);
    INSERT INTO public.holdfast_pool_hold VALUES (own_key, own_id, 'sold', own_lines, now + life);
    RETURN E'sold\t' || own_lines;
  ELSIF verb = 'cancel' AND is_known AND known.state = 'held' THEN
    DELETE FROM public.holdfast_pool_hold h WHERE h.key = own_key AND h.id = own_id;
    PERFORM public.holdfast_pool_move(own_key, known.lines, -1, 0);
    RETURN E'cancelled\t\t' || public.holdfast_is_wanted(own_key, string_to_array(known.lines, E'\n'), now);
  ELSIF verb IN ('set', 'add') THEN
    IF NOT is_known THEN
      lacking := public.holdfast_pool_lacks(own_key, verb, own_id, words, flag, now);
      IF lacking IS NOT NULL THEN
        RETURN lacking;
      END IF;
      FOR i IN 1 .. cardinality(words) BY 2 LOOP
        INSERT INTO public.holdfast_pool_item AS i (key, item, stock, sold, held, wanted_by, wanted_until)
          VALUES (own_key, words[i], words[i + 1]::bigint, 0, 0, '', '-infinity')
          ON CONFLICT (key, item) DO UPDATE
            SET stock = excluded.stock + CASE WHEN verb = 'add' THEN i.stock ELSE 0 END;
      END LOOP;
      INSERT INTO public.holdfast_pool_hold VALUES (own_key, own_id, 'changed', own_lines, now + life);
    END IF;
    RETURN E'changed\t\t' || public.holdfast_is_wanted(own_key, words, now);
  END IF;

  RETURN CASE
    WHEN is_known AND known.state = 'held'
      THEN concat_ws(E'\t', 'held', known.lines, extract(epoch FROM known.at - now) * 1000)
    WHEN is_known AND known.state = 'sold' THEN E'sold\t' || known.lines
    ELSE 'gone' END;
END $$;

-- The answer to a step of which a line lacks, when all that could help was taken back; null if none does. `what` is the
-- verb, or `first` for a `reserve` of the first in line.
CREATE OR REPLACE FUNCTION public.holdfast_pool_lacks(
  own_key text, what text, own_id text, words text[], flag boolean, now timestamptz
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  may_be_new boolean := what IN ('set', 'add');
  more boolean := true;
  r public.holdfast_pool_item;
  quantity bigint;
  lacks boolean;
  short text;
BEGIN
  LOOP
    short := NULL;
    FOR i IN 1 .. cardinality(words) BY 2 LOOP
      SELECT * INTO r FROM public.holdfast_pool_item p WHERE p.key = own_key AND p.item = words[i];
      IF r.item IS NULL AND NOT may_be_new THEN
        RETURN E'unknown\t' || words[i];
      END IF;
      quantity := words[i + 1]::bigint + CASE WHEN what = 'add' THEN coalesce(r.stock, 0) ELSE 0 END;
      lacks := CASE
        WHEN may_be_new THEN quantity < 0 OR (NOT flag AND quantity < coalesce(r.sold + r.held, 0))
        ELSE r.stock - r.sold - r.held < quantity
          OR (what = 'reserve' AND r.wanted_by NOT IN ('', own_id)
            AND r.wanted_until > now AND r.wanted_until <= now + interval '1 min') END;
      IF lacks THEN
        short := words[i];
        EXIT;
      END IF;
    END LOOP;
    EXIT WHEN short IS NULL;
    IF NOT more THEN
      RETURN concat_ws(E'\t', 'short', short, public.holdfast_next_lapse(own_key, now));
    END IF;
    more := public.holdfast_take_back(own_key, now);
  END LOOP;
  RETURN NULL;
END $$;
