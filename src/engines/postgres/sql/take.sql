-- Draw from rate limits: the rule of core/rate.ts, on records (records.sql). All numbers are whole and below 2^53, so
-- that double precision has them exactly, and rounds where the rule does.
--
-- `own_keys` are the keys of all draws, once each, in their order. A draw has `counts` parts, one after the other in
-- `places` (which of the keys), `costs` and `rates` (which of the rates), and may be booked as far ahead as `books`
-- says (us). The answer is a JSON array: the time (us), and for each draw a text: 't' if it was taken, 'r' if not,
-- each with the debts of its parts behind spaces; or '!' if a record of it is no rate limit.
--
-- Records are locked in the order of their keys, as in holdfast_put, and the clock is read when all are: so it never
-- goes back from one draw of a key to the next. A crash of the server may forget the draws of its last moments.
CREATE OR REPLACE FUNCTION public.holdfast_take(
  own_keys text[], places integer[], costs bigint[], rates integer[], counts integer[], books bigint[],
  rate_tokens bigint[], rate_steps bigint[], rate_step_us bigint[], rate_capacities bigint[], row_wait_ms integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  prepared text := public.holdfast_begin_call(row_wait_ms);
  r public.holdfast_record;
  now timestamptz;
  now_us float8;
  stored text;
  words text[];
  -- By key: what is stored, and is to be stored.
  versions bigint[];
  expiries timestamptz[];
  strange boolean[];
  ats float8[];
  debts float8[];
  tokens float8[];
  steps float8[];
  steps_us float8[];
  changed integer[];
  -- Of the parts of one draw.
  drained float8[];
  drained_at float8[];
  wanted float8[];
  own_at float8;
  own_debt float8;
  verdict text;
  answers text[];
  before integer := 0;
  k integer;
  n integer;
  lives float8;
  is_unused boolean := false;
BEGIN
  prepared := set_config('synchronous_commit', 'off', true);
  FOR i IN 1 .. cardinality(own_keys) LOOP
    LOOP
      SELECT * INTO r FROM public.holdfast_record WHERE key = own_keys[i] FOR NO KEY UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO public.holdfast_record (key, version, mark) VALUES (own_keys[i], 0, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    versions[i] := r.version;
    expiries[i] := r.expires_at;
    -- "rate1" and six numbers. A regular expression costs more than a quarter of the whole call.
    stored := encode(r.value, 'escape');
    words := string_to_array(stored, ' ');
    strange[i] := coalesce(words[1] <> 'rate1' OR translate(stored, '0123456789', '') <> 'rate      '
      OR '' = ANY (words), false);
    IF stored IS NULL OR strange[i] THEN
      ats[i] := NULL;
    ELSE
      ats[i] := words[2];
      debts[i] := words[3];
      tokens[i] := words[4];
      steps[i] := words[5];
      steps_us[i] := words[6];
    END IF;
  END LOOP;
  now := clock_timestamp();
  now_us := floor(extract(epoch FROM now) * 1000000);
  FOR i IN 1 .. cardinality(own_keys) LOOP
    IF expiries[i] <= now THEN
      strange[i] := false;
      ats[i] := NULL;
    END IF;
  END LOOP;

  FOR d IN 1 .. cardinality(counts) LOOP
    verdict := 't';
    FOR j IN 1 .. counts[d] LOOP
      k := places[before + j];
      n := rates[before + j];
      IF strange[k] THEN
        verdict := '!';
        EXIT;
      END IF;
      own_at := floor(now_us / rate_step_us[n]) * rate_step_us[n];
      own_debt := 0;
      IF ats[k] IS NOT NULL THEN
        own_debt := greatest(0, debts[k] - greatest(0, floor((now_us - ats[k]) / steps_us[k])) * steps[k]);
        IF tokens[k] <> rate_tokens[n] OR steps[k] <> rate_steps[n] OR steps_us[k] <> rate_step_us[n] THEN
          own_debt := least(rate_capacities[n], ceil(own_debt / tokens[k] * rate_tokens[n]));
        END IF;
        -- A clock that is behind by less than a second stands still.
        IF now_us < ats[k] AND ats[k] - now_us <= 1000000 THEN
          own_at := ats[k];
        END IF;
      END IF;
      drained[j] := own_debt;
      drained_at[j] := own_at;
      wanted[j] := own_debt + costs[before + j] * rate_tokens[n];
      IF wanted[j] > rate_capacities[n] + floor(books[d] / rate_step_us[n]::float8) * rate_steps[n] THEN
        verdict := 'r';
      END IF;
    END LOOP;
    answers[d] := verdict;
    IF verdict <> '!' THEN
      FOR j IN 1 .. counts[d] LOOP
        k := places[before + j];
        n := rates[before + j];
        answers[d] := answers[d] || ' ' || (CASE verdict WHEN 't' THEN wanted[j] ELSE drained[j] END)::bigint;
        IF verdict = 't' AND costs[before + j] > 0 THEN
          ats[k] := drained_at[j];
          debts[k] := wanted[j];
          tokens[k] := rate_tokens[n];
          steps[k] := rate_steps[n];
          steps_us[k] := rate_step_us[n];
          changed[k] := n;
        END IF;
      END LOOP;
    END IF;
    before := before + counts[d];
  END LOOP;

  FOR i IN 1 .. cardinality(own_keys) LOOP
    n := changed[i];
    IF n IS NULL THEN
      is_unused := is_unused OR versions[i] = 0;
      CONTINUE;
    END IF;
    IF versions[i] = 0 THEN
      -- As in holdfast_put_record.
      versions[i] := (SELECT m.floor FROM public.holdfast_meta m);
    END IF;
    -- Longer than it has to be, and not anew each time: while the expiry stays, no index has to be changed.
    lives := least(ceil(debts[i] / steps[i]) * steps_us[i], 3e15);
    IF expiries[i] IS NULL OR expiries[i] < now + lives * interval '1 us' THEN
      expiries[i] := now + (lives + least(lives, 86400e6) + 60e6) * interval '1 us';
    END IF;
    UPDATE public.holdfast_record SET
        value = convert_to(concat_ws(' ', 'rate1', ats[i]::bigint, debts[i]::bigint, rate_tokens[n], rate_steps[n],
          rate_step_us[n], rate_capacities[n]), 'UTF8'),
        version = greatest(versions[i] + 1, now_us::bigint), mark = 0, expires_at = expiries[i]
      WHERE key = own_keys[i];
  END LOOP;
  IF is_unused THEN
    DELETE FROM public.holdfast_record WHERE key = ANY (own_keys) AND version = 0;
  END IF;
  RETURN json_build_array(now_us::bigint, to_json(answers));
END $$;
