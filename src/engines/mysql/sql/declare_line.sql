-- The line, as holdfast_open_line hands it on.
DECLARE now_us, last_token, due, held_weight, held_until BIGINT;
DECLARE held, held_lim, held_lims, waiting INT;
DECLARE its_id BINARY(16);
DECLARE is_crowd, is_evicted BOOLEAN;
