-- What is stored. Times and ttls are microseconds, by the server's clock, in UTC.
--
-- A line has one row. While one entry is alone in it, which is nearly always, the row is that entry, and entering,
-- renewing and leaving change one row each. With a second one the line is a *crowd*: its entries are rows of their own,
-- and the line's row has their sums. Whoever changes a line has locked its row; entries are touched only under that
-- lock, and lines are locked in the order of their keys.
--
-- The row stays for a moment when everybody has left, and has the last token. When it is removed, that token goes into
-- `floor`: so tokens never go back.
CREATE TABLE IF NOT EXISTS `holdfast_meta` (
  one TINYINT NOT NULL PRIMARY KEY,
  format INT NOT NULL,
  floor BIGINT NOT NULL -- no line whose row was removed has had a token above this one
) ENGINE = InnoDB
//

INSERT INTO `holdfast_meta` (one, format, floor) VALUES (1, 1, 0) ON DUPLICATE KEY UPDATE one = 1
//

-- No index but the primary key: each would cost half as much again, for every lock there is.
CREATE TABLE IF NOT EXISTS `holdfast_line` (
  k VARBINARY(512) NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL, -- the last one of this line
  due_at BIGINT NOT NULL, -- when the only entry expires, or in a crowd, before which nothing does; 0 if nobody is there

  -- The only entry, which holds; `token` is its own. When it has left, its id stays until the next one comes: a row
  -- whose size stays the same is changed in place.
  id BINARY(16),
  holder VARBINARY(512),
  client BINARY(16),
  weight INT NOT NULL,
  lim INT NOT NULL,
  ttl BIGINT NOT NULL,
  since BIGINT NOT NULL,
  evicted TINYINT NOT NULL DEFAULT 0, -- 1: its renewals are refused
  outlives TINYINT NOT NULL DEFAULT 0, -- 1: it stands here without its owner, and what that one had sent before, and comes late, does not cut it short

  -- A crowd. Those who hold: how many, what they weigh, the smallest of their limits, how many have it, and the last of
  -- them, since they are the front of the line.
  crowd TINYINT NOT NULL DEFAULT 0,
  held INT NOT NULL DEFAULT 0,
  held_weight BIGINT NOT NULL DEFAULT 0,
  held_lim INT NOT NULL DEFAULT 0,
  held_lims INT NOT NULL DEFAULT 0,
  held_until BIGINT NOT NULL DEFAULT 0,
  waiting INT NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//

-- The entries of crowds. What expires next is not in an index, which every renewal would have to change: a line is
-- walked for it, but only when the time that was found so has nearly come, so that a walk of n entries is shared by the
-- n renewals in between.
CREATE TABLE IF NOT EXISTS `holdfast_entry` (
  k VARBINARY(512) NOT NULL,
  token BIGINT NOT NULL,
  id BINARY(16) NOT NULL,
  holder VARBINARY(512) NOT NULL,
  client BINARY(16) NOT NULL,
  weight INT NOT NULL,
  lim INT NOT NULL,
  ttl BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  since BIGINT NOT NULL,
  held_since BIGINT, -- null while it waits
  evicted TINYINT NOT NULL DEFAULT 0,
  outlives TINYINT NOT NULL DEFAULT 0,
  removed TINYINT NOT NULL DEFAULT 0, -- 1: out of the line, and remembered until it would have expired, so that its owner hears why
  news_at BIGINT, -- when another client let it hold or evicted it, if it has not been renewed since
  PRIMARY KEY (k, token),
  UNIQUE KEY by_id (k, id),
  KEY news (client, news_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
