-- Lock and read the line of `own_key`: see holdfast_open_line.
CALL `holdfast_open_line`(
  own_key, engine_id, now_us, last_token, due, is_crowd, its_id, is_evicted,
  held, held_weight, held_lim, held_lims, held_until, waiting);
