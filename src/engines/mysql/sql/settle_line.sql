-- Who may hold now? Writes the sums of a crowd: see holdfast_settle.
CALL `holdfast_settle`(
  own_key, now_us, me, last_token, due,
  held, held_weight, held_lim, held_lims, held_until, waiting);
