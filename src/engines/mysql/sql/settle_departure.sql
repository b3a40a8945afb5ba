-- An entry has gone from a crowd, with `own_token`, `own_weight`, `own_lim` and `own_held_since`: the sums without it.
-- A waiter that goes can let the waiters behind it hold, too.
IF own_held_since IS NULL THEN
  SET waiting = waiting - 1;
ELSE
  SET held = held - 1, held_weight = held_weight - own_weight, held_lims = held_lims - (own_lim = held_lim);
END IF;
--#include settle_line
IF own_held_since IS NULL AND waiting > 0 THEN
  CALL `holdfast_tell_first`(own_key, held_until, own_token, now_us, engine_id);
END IF;
