-- Who may hold now? Writes the sums of a crowd: see holdfast_settle_line.
CALL `holdfast_settle_line`(
  own_key, now_us, engine_id, last_token, due,
  held, held_weight, held_lim, held_lims, held_until, waiting);
