-- Looking at lines. Each answers with one statement: so no entry is seen twice, or not at all, while it moves from a
-- line's row into a crowd.

-- The entries of a line. What has expired goes first. Answers a row for each entry, in order: id, holder, whether it
-- holds, token, weight, limit, and in microseconds its ttl, what is left of it, how long it has been there, and how
-- long it has held. And one row: `free`, if the line is empty and has a row all the same; and the news for `engine_id`.
CREATE PROCEDURE `holdfast_inspect`(IN own_key VARBINARY(512), IN engine_id BINARY(16)) SQL SECURITY INVOKER
BEGIN
  --#include declare_line
  DECLARE is_due, is_free BOOLEAN DEFAULT FALSE;
  --#include declare_rollback

  CALL `holdfast_begin_call`();
  SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  -- The line is locked only if something has expired: to look must not make other calls wait.
  SELECT TRUE INTO is_due FROM `holdfast_line` l WHERE l.k = own_key AND l.crowd = 1 AND l.due_at <= now_us;
  IF is_due THEN
    --#include open_line
  END IF;
  SELECT LOWER(HEX(e.id)), HEX(e.holder), e.held_since IS NOT NULL, CAST(e.token AS CHAR),
      CAST(e.weight AS CHAR), CAST(e.lim AS CHAR), CAST(e.ttl AS CHAR), CAST(e.expires_at - now_us AS CHAR),
      CAST(now_us - e.since AS CHAR), CAST(now_us - e.held_since AS CHAR), e.evicted
    FROM (
      SELECT id, holder, token, weight, lim, ttl, due_at AS expires_at, since, since AS held_since, evicted
        FROM `holdfast_line` WHERE k = own_key AND crowd = 0
      UNION ALL
      SELECT id, holder, token, weight, lim, ttl, expires_at, since, held_since, evicted
        FROM `holdfast_entry` WHERE k = own_key AND removed = 0
    ) AS e WHERE e.expires_at > now_us ORDER BY e.token;
  -- Before the end, or without autocommit a transaction would stay open.
  SELECT TRUE INTO is_free FROM `holdfast_line` l WHERE l.k = own_key AND l.crowd = 0 AND l.due_at <= now_us;
  COMMIT AND NO CHAIN NO RELEASE;
  --#include finish
  SELECT IF(is_free, 'free', ''), @holdfast_news;
END
//

-- Lines that are not empty, a page of them, in the order of their keys: from `from_key` on, or after it, and before
-- `to_key`, if it is not null. What has expired goes first, except where another call has locked the line. Answers rows
-- of key, how many hold and how many wait. And one row: the last key of the page, in hexadecimal, or '' if there are no
-- more; and the news for `engine_id`.
CREATE PROCEDURE `holdfast_list`(
  IN from_key VARBINARY(512), IN after_it BOOLEAN, IN to_key VARBINARY(513), IN most INT, IN engine_id BINARY(16)
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key, last_key VARBINARY(512);
  DECLARE looked INT;
  DECLARE is_locked BOOLEAN;
  --#include declare_line
  --#include declare_rollback

  CALL `holdfast_begin_call`();
  SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SELECT COUNT(*), MAX(page.k) INTO looked, last_key FROM (
    SELECT l.k FROM `holdfast_line` l
      WHERE l.k >= from_key AND (l.k > from_key OR NOT after_it) AND (to_key IS NULL OR l.k < to_key)
      ORDER BY l.k LIMIT most
  ) AS page;
  REPEAT
    SELECT MIN(l.k) INTO own_key FROM `holdfast_line` l
      WHERE l.k >= from_key AND l.k <= last_key AND l.crowd = 1 AND l.due_at <= now_us
        AND (own_key IS NULL OR l.k > own_key);
    IF own_key IS NOT NULL THEN
      CALL `holdfast_try_line`(own_key, is_locked);
      IF NOT is_locked THEN
        --#include open_line
      END IF;
    END IF;
  UNTIL own_key IS NULL END REPEAT;
  SELECT LOWER(HEX(l.k)), CAST(IF(l.crowd, l.held, 1) AS CHAR), CAST(IF(l.crowd, l.waiting, 0) AS CHAR)
    FROM `holdfast_line` l
    WHERE l.k >= from_key AND (l.k > from_key OR NOT after_it) AND l.k <= last_key
      AND IF(l.crowd, l.held + l.waiting > 0, l.due_at > now_us) ORDER BY l.k;
  COMMIT AND NO CHAIN NO RELEASE;
  --#include finish
  SELECT IF(looked < most, '', HEX(last_key)), @holdfast_news;
END
//
