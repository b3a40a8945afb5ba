-- Before anything else, in every call that changes lines: what they rely on, and how long to wait for a row.
CREATE OR REPLACE FUNCTION public.holdfast_prepare_1(patience_ms integer)
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
  done := set_config('lock_timeout', patience_ms::text, true);
  -- A lock that is lost in a crash is a lock that two processes hold.
  IF current_setting('synchronous_commit') = 'off' THEN
    done := set_config('synchronous_commit', 'on', true);
  END IF;
  RETURN done;
END $$;
