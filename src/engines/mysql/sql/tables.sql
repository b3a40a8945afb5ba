-- What is stored. Times and ttls are microseconds, by the server's clock, in UTC.
--
-- A line has one row. While one entry is alone in it, which is nearly always, the row is that entry, and entering,
-- renewing and leaving change one row each. With a second entry the line is a *crowd*: its entries are rows of their
-- own, and the line's row has their sums. A call that changes a line has locked the line's row; entries are touched
-- only under that lock, and lines are locked in the order of their keys.
--
-- When the last entry has left, the row stays for a moment, and has the last token. When the row is removed, that token
-- goes into `floor`: so tokens never go back.
--
-- The column `client` is the id of the engine object that an entry belongs to (`engineId`), and so of a process. (To
-- rename the column would lock out older versions.)
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
  -- When the only entry expires; in a crowd, a time before which no entry does; 0 if the line is empty.
  due_at BIGINT NOT NULL,

  -- The only entry, which holds; `token` is its own. When it has left, its id stays until the next entry comes: a row
  -- whose size stays the same is changed in place.
  id BINARY(16),
  holder VARBINARY(512),
  client BINARY(16),
  weight INT NOT NULL,
  lim INT NOT NULL,
  ttl BIGINT NOT NULL,
  since BIGINT NOT NULL,
  evicted TINYINT NOT NULL DEFAULT 0, -- 1: its renewals are refused
  -- 1: the entry stands here without its process. A renewal that the process had sent before, and that comes late, does
  -- not cut it short.
  outlives TINYINT NOT NULL DEFAULT 0,

  -- A crowd. Of the holders: how many there are, their weight, the smallest of their limits, how many have that limit,
  -- and the token of the last holder: the holders are the front of the line.
  crowd TINYINT NOT NULL DEFAULT 0,
  held INT NOT NULL DEFAULT 0,
  held_weight BIGINT NOT NULL DEFAULT 0,
  held_lim INT NOT NULL DEFAULT 0,
  held_lims INT NOT NULL DEFAULT 0,
  held_until BIGINT NOT NULL DEFAULT 0,
  waiting INT NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//

-- The entries of crowds. What expires next is not in an index, which every renewal would have to change. Instead, all
-- entries of a line are read, but only when the time that was found so has nearly come: a walk of n entries is shared
-- by the n renewals in between.
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
  -- 1: out of the line, and remembered until it would have expired, so that its process hears why.
  removed TINYINT NOT NULL DEFAULT 0,
  -- When another process let it hold or evicted it, if it has not been renewed since.
  news_at BIGINT,
  PRIMARY KEY (k, token),
  UNIQUE KEY by_id (k, id),
  KEY news (client, news_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//

-- Records beside the lines: see records.sql.
CREATE TABLE IF NOT EXISTS `holdfast_record` (
  k VARBINARY(512) NOT NULL PRIMARY KEY,
  value MEDIUMBLOB, -- null for a removal that is remembered
  -- That of the last change; 0 in a row that was made only to be locked, and that no other call sees.
  version BIGINT NOT NULL,
  mark BIGINT NOT NULL,
  -- Null: it stays until it is removed. What has expired is nothing; the row has its version until it is swept.
  expires_at BIGINT,
  KEY expiry (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//

-- Pools: stock of which parts are held for a while; see pools.sql. A call that changes a pool has locked this row.
CREATE TABLE IF NOT EXISTS `holdfast_pool` (
  k VARBINARY(512) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//

CREATE TABLE IF NOT EXISTS `holdfast_pool_item` (
  k VARBINARY(512) NOT NULL,
  item VARBINARY(128) NOT NULL,
  stock BIGINT NOT NULL,
  sold BIGINT NOT NULL,
  held BIGINT NOT NULL, -- what has lapsed and was not taken back included
  wanted_by VARBINARY(256) NOT NULL, -- the id of the first in line; '' if none wants it
  wanted_until BIGINT NOT NULL,
  PRIMARY KEY (k, item)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//

CREATE TABLE IF NOT EXISTS `holdfast_pool_hold` (
  k VARBINARY(512) NOT NULL,
  id VARBINARY(256) NOT NULL,
  state TINYINT NOT NULL, -- 0 held, 1 sold, 2 a change of the stock
  units BLOB NOT NULL, -- item and quantity by turns, separated by line feeds
  due_at BIGINT NOT NULL, -- when it lapses, or is forgotten
  PRIMARY KEY (k, id),
  KEY due (k, state, due_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
