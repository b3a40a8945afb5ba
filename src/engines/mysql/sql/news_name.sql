-- The name of the news on an entry: see holdfast_listen.
CASE WHEN evicted THEN CONCAT('-', LOWER(HEX(id))) WHEN held_since IS NOT NULL THEN LOWER(HEX(id))
  ELSE CONCAT('~', LOWER(HEX(id)), '.', news_at) END
