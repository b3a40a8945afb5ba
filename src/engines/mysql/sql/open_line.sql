-- Lock and read the line of `own_key`: see holdfast_open.
CALL `holdfast_open`(
  own_key, me, now_us, last_token, due, is_crowd, its_id, is_evicted,
  held, held_weight, held_lim, held_lims, held_until, waiting);
