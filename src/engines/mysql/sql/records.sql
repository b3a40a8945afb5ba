-- Records beside the lines: every decision about them. (The table is in tables.sql.) These procedures call none of the
-- others, and have a version of their own: see names.ts.
--
-- A change locks the record first, and then the line of the same key, if it asks who holds it; records and lines in the
-- order of their keys, all records before all lines. Calls that enter, renew and leave lock lines only. So a call that
-- waits for a record, which a transaction of the user may have locked for long (holdfast_put_in), keeps no line from
-- being renewed.
--
-- A record in an answer is a row: `stored`, `read` or the condition that was not met; the value in hexadecimal; the
-- version (0: nothing is stored); the mark; for how long it lives, in microseconds (null: for good); what time it is.

-- For each key, `key;` in hexadecimal, what is stored: one result set with one row.
CREATE PROCEDURE `holdfast_get`(IN its_keys LONGTEXT CHARACTER SET ascii) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE its_value MEDIUMBLOB;
  DECLARE now_us, its_version, its_mark, its_expiry BIGINT;
  COMMIT AND NO CHAIN NO RELEASE;
  WHILE its_keys <> '' DO
    SET own_key = UNHEX(SUBSTRING_INDEX(its_keys, ';', 1)),
      its_keys = SUBSTRING(its_keys, LENGTH(SUBSTRING_INDEX(its_keys, ';', 1)) + 2);
    SET its_value = NULL, its_version = 0, its_mark = 0, its_expiry = NULL,
      now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT r.value, r.version, r.mark, IF(r.value IS NULL, NULL, r.expires_at)
      INTO its_value, its_version, its_mark, its_expiry
      FROM `holdfast_record` r WHERE r.k = own_key AND (r.expires_at IS NULL OR r.expires_at > now_us);
    SELECT 'read', HEX(its_value), CAST(its_version AS CHAR), CAST(its_mark AS CHAR),
      CAST(its_expiry - now_us AS CHAR), CAST(now_us AS CHAR);
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
END
//

-- Whether an entry holds a line, and whether the line is empty: as it is now, if the caller has locked the line or sees
-- what is committed.
CREATE PROCEDURE `holdfast_look_at_line`(
  IN own_key VARBINARY(512), IN own_id BINARY(16), OUT holds BOOLEAN, OUT is_empty BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE now_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SET holds = FALSE, is_empty = TRUE;
  SELECT l.id <=> own_id, FALSE INTO holds, is_empty
    FROM `holdfast_line` l WHERE l.k = own_key AND l.crowd = 0 AND l.due_at > now_us;
  IF is_empty THEN
    -- The smallest of one row: killed, a SELECT with a LIMIT may be skipped without an error, and EXISTS be false.
    SELECT MIN(first.token) IS NULL INTO is_empty FROM (
      SELECT e.token FROM `holdfast_entry` e
        WHERE e.k = own_key AND e.removed = 0 AND e.expires_at > now_us LIMIT 1) first;
    SELECT TRUE INTO holds
      FROM `holdfast_entry` e
      WHERE e.k = own_key AND e.id = own_id AND e.held_since IS NOT NULL AND e.removed = 0 AND e.expires_at > now_us;
  END IF;
END
//

-- Make one change of a record that this transaction has locked, if its conditions are met, and answer. What is null is
-- not asked for; a null value is a removal. Locking reads see what is there now, at every isolation level.
CREATE PROCEDURE `holdfast_put_record`(
  IN own_key VARBINARY(512), IN own_value MEDIUMBLOB, IN own_ttl BIGINT, IN own_mark BIGINT, IN holds BOOLEAN,
  IN is_empty BOOLEAN, IN absent BOOLEAN, IN own_version BIGINT, IN mark_below BIGINT, OUT is_stored BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_value MEDIUMBLOB;
  DECLARE its_version, its_mark BIGINT DEFAULT 0;
  DECLARE its_expiry, last_version BIGINT;
  DECLARE now_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  DECLARE refused_by VARCHAR(16) CHARACTER SET ascii;
  SELECT r.value, r.version, r.mark, r.expires_at INTO its_value, its_version, its_mark, its_expiry
    FROM `holdfast_record` r WHERE r.k = own_key FOR UPDATE;
  SET last_version = its_version;
  IF its_expiry <= now_us THEN
    SET its_value = NULL, its_version = 0, its_mark = 0;
  END IF;
  SET refused_by = CASE
    WHEN NOT holds THEN 'holding'
    WHEN absent AND its_value IS NOT NULL THEN 'absent'
    WHEN own_version <> its_version THEN 'version'
    WHEN mark_below <= its_mark THEN 'markBelow' END;
  SET is_stored = refused_by IS NULL;
  IF is_stored THEN
    IF last_version = 0 THEN
      -- The row is new. Read after it is there: a sweep that has removed the row before it has raised the floor.
      SELECT m.floor INTO last_version FROM `holdfast_meta` m WHERE m.one = 1;
    END IF;
    SET its_version = GREATEST(last_version + 1, now_us),
      its_mark = IF(own_value IS NULL, 0, GREATEST(its_mark, IFNULL(own_mark, 0)));
    -- A holder that has found what is removed now is refused for a day (TOMBSTONE_MS). In an empty line there is none.
    UPDATE `holdfast_record` r
      SET r.value = own_value, r.version = its_version, r.mark = its_mark,
        r.expires_at = now_us + IF(own_value IS NULL, IF(is_empty, 0, 86400000000), own_ttl)
      WHERE r.k = own_key;
    SELECT 'stored', NULL, CAST(its_version AS CHAR), CAST(its_mark AS CHAR), NULL, CAST(now_us AS CHAR);
  ELSE
    SELECT refused_by, HEX(its_value), CAST(its_version AS CHAR), CAST(its_mark AS CHAR),
      CAST(IF(its_value IS NULL, NULL, its_expiry - now_us) AS CHAR), CAST(now_us AS CHAR);
  END IF;
END
//

-- Lock a record, also one that has no row yet. If not `patient`, one that another transaction has locked is left alone.
CREATE PROCEDURE `holdfast_lock_record`(
  IN own_key VARBINARY(512), IN patient BOOLEAN, OUT is_locked BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE is_had, is_there BOOLEAN DEFAULT FALSE;
  IF NOT patient THEN
    SELECT TRUE INTO is_had FROM `holdfast_record` WHERE k = own_key FOR UPDATE SKIP LOCKED;
    SELECT TRUE INTO is_there FROM `holdfast_record` WHERE k = own_key;
  END IF;
  SET is_locked = is_there AND NOT is_had;
  IF NOT is_there THEN
    INSERT INTO `holdfast_record` (k, version, mark) VALUES (own_key, 0, 0) ON DUPLICATE KEY UPDATE version = version;
  END IF;
END
//

-- Make changes, in the order of the batch, each if its conditions are met: one result set with one row for each.
-- `record_keys` are the keys of all, in their order, once each, as `key;`, `line_keys` those whose lines are asked
-- about. A change is `key id length ttl mark absent version mark_below;`: what is not asked for is a minus; `length` is
-- that of its hexadecimal digits in `its_values`, a minus for a removal. If not `patient`, records and lines that
-- another transaction has locked are left out, and their changes answered with `locked`.
CREATE PROCEDURE `holdfast_put`(
  IN record_keys LONGTEXT CHARACTER SET ascii, IN line_keys LONGTEXT CHARACTER SET ascii,
  IN batch LONGTEXT CHARACTER SET ascii, IN its_values LONGTEXT CHARACTER SET ascii, IN patient BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE own_id BINARY(16);
  DECLARE own_value MEDIUMBLOB;
  DECLARE place BIGINT DEFAULT 1;
  DECLARE is_locked, is_had, is_there, holds, is_empty, is_stored BOOLEAN DEFAULT FALSE;
  DECLARE refused BOOLEAN DEFAULT FALSE;
  DECLARE locked LONGTEXT CHARACTER SET ascii DEFAULT ';';
  DECLARE item, given_length, given_ttl, given_mark, given_absent, given_version, given_below
    VARCHAR(1400) CHARACTER SET ascii;
  DECLARE keys_left LONGTEXT CHARACTER SET ascii DEFAULT record_keys;
  --#include declare_rollback

  --#include begin
  WHILE keys_left <> '' DO
    SET item = SUBSTRING_INDEX(keys_left, ';', 1), keys_left = SUBSTRING(keys_left, LENGTH(item) + 2);
    CALL `holdfast_lock_record`(UNHEX(item), patient, is_locked);
    IF is_locked THEN
      SET locked = CONCAT(locked, item, ';');
    END IF;
  END WHILE;
  WHILE line_keys <> '' DO
    SET item = SUBSTRING_INDEX(line_keys, ';', 1), line_keys = SUBSTRING(line_keys, LENGTH(item) + 2);
    SET own_key = UNHEX(item), is_had = FALSE, is_there = FALSE;
    IF patient THEN
      SELECT TRUE INTO is_had FROM `holdfast_line` l WHERE l.k = own_key FOR UPDATE;
    ELSE
      SELECT TRUE INTO is_had FROM `holdfast_line` l WHERE l.k = own_key FOR UPDATE SKIP LOCKED;
      SELECT TRUE INTO is_there FROM `holdfast_line` l WHERE l.k = own_key;
    END IF;
    IF is_there AND NOT is_had THEN
      SET locked = CONCAT(locked, item, ';');
    END IF;
  END WHILE;
  WHILE batch <> '' DO
    SET item = SUBSTRING_INDEX(batch, ';', 1), batch = SUBSTRING(batch, LENGTH(item) + 2);
    SET own_key = UNHEX(SUBSTRING_INDEX(item, ' ', 1)),
      own_id = UNHEX(NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 2), ' ', -1), '-')),
      given_length = NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 3), ' ', -1), '-'),
      given_ttl = NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 4), ' ', -1), '-'),
      given_mark = NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 5), ' ', -1), '-'),
      given_absent = NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 6), ' ', -1), '-'),
      given_version = NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 7), ' ', -1), '-'),
      given_below = NULLIF(SUBSTRING_INDEX(item, ' ', -1), '-');
    SET own_value = UNHEX(SUBSTRING(its_values, place, given_length)), place = place + IFNULL(given_length, 0);
    IF LOCATE(CONCAT(';', SUBSTRING_INDEX(item, ' ', 1), ';'), locked) THEN
      SELECT 'locked', NULL, '0', '0', NULL, '0';
      SET refused = TRUE;
    ELSE
      IF own_id IS NOT NULL OR own_value IS NULL THEN
        CALL `holdfast_look_at_line`(own_key, own_id, holds, is_empty);
      END IF;
      CALL `holdfast_put_record`(
        own_key, own_value, given_ttl, given_mark, own_id IS NULL OR holds, is_empty, given_absent, given_version,
        given_below, is_stored);
      SET refused = refused OR NOT is_stored;
    END IF;
  END WHILE;
  WHILE refused AND record_keys <> '' DO
    -- Rows that were made to be locked, and were not needed.
    SET item = SUBSTRING_INDEX(record_keys, ';', 1), record_keys = SUBSTRING(record_keys, LENGTH(item) + 2);
    IF NOT LOCATE(CONCAT(';', item, ';'), locked) THEN
      DELETE FROM `holdfast_record` WHERE k = UNHEX(item) AND version = 0;
    END IF;
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  SET innodb_lock_wait_timeout = usual_wait;
END
//

-- A change inside a transaction of the user is several calls. That transaction may see lines as they were when it began
-- (`repeatable read` is the default), and a locking read of a line would keep it from being renewed. So:
--     holdfast_facts    on a connection of ours, unless it is known that the record has a row: make one
--     holdfast_lock_in  in the user's transaction: lock the record
--     holdfast_facts    on a connection of ours: who holds the line now
--     holdfast_put_in   in the user's transaction: make the change
-- The next holder may come meanwhile. Its first change of the record waits for the end of the transaction.

-- Answers whether the record has a row, which is locked then. To ask for one that has none would lock the gap where it
-- would be, and with it the records of other keys.
CREATE PROCEDURE `holdfast_lock_in`(IN own_key VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
  DECLARE usual_wait INT DEFAULT @@innodb_lock_wait_timeout;
  DECLARE is_had BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    SET innodb_lock_wait_timeout = usual_wait;
    RESIGNAL;
  END;
  SET innodb_lock_wait_timeout = LEAST(usual_wait, 5);
  SELECT TRUE INTO is_had FROM `holdfast_record` r WHERE r.k = own_key FOR UPDATE;
  SET innodb_lock_wait_timeout = usual_wait;
  SELECT CAST(is_had AS CHAR);
END
//

-- Whether that entry holds the line, and whether the line is empty. `needs_row`: a record without a row is given one,
-- which counts as expired.
CREATE PROCEDURE `holdfast_facts`(
  IN own_key VARBINARY(512), IN own_id BINARY(16), IN needs_row BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE holds, is_empty, is_there BOOLEAN DEFAULT FALSE;
  DECLARE now_us, lowest BIGINT;
  --#include declare_rollback
  --#include begin
  -- Without a lock: the transaction of the user may have locked the row before.
  SELECT TRUE INTO is_there FROM `holdfast_record` r WHERE r.k = own_key;
  IF needs_row AND NOT is_there THEN
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    INSERT INTO `holdfast_record` (k, version, mark, expires_at) VALUES (own_key, 0, 0, now_us)
      ON DUPLICATE KEY UPDATE version = version;
    SELECT m.floor INTO lowest FROM `holdfast_meta` m WHERE m.one = 1;
    UPDATE `holdfast_record` r SET r.version = GREATEST(lowest + 1, now_us) WHERE r.k = own_key AND r.version = 0;
  END IF;
  CALL `holdfast_look_at_line`(own_key, own_id, holds, is_empty);
  COMMIT AND NO CHAIN NO RELEASE;
  SET innodb_lock_wait_timeout = usual_wait;
  SELECT CAST(holds AS CHAR), CAST(is_empty AS CHAR);
END
//

-- As holdfast_put_record, of a record that holdfast_lock_in has locked.
CREATE PROCEDURE `holdfast_put_in`(
  IN own_key VARBINARY(512), IN own_value MEDIUMBLOB, IN own_ttl BIGINT, IN own_mark BIGINT, IN holds BOOLEAN,
  IN is_empty BOOLEAN, IN absent BOOLEAN, IN own_version BIGINT, IN mark_below BIGINT
) SQL SECURITY INVOKER
BEGIN
  DECLARE is_stored BOOLEAN;
  CALL `holdfast_put_record`(
    own_key, own_value, own_ttl, own_mark, holds, is_empty, absent, own_version, mark_below, is_stored);
END
//

-- A page of records from a key on, and before another (null: to the end): rows of key, bytes (null for what is
-- nothing), version, mark, and for how long it lives.
CREATE PROCEDURE `holdfast_records`(
  IN from_key VARBINARY(512), IN after_it BOOLEAN, IN before_key VARBINARY(512), IN most INT
) SQL SECURITY INVOKER
BEGIN
  DECLARE now_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  COMMIT AND NO CHAIN NO RELEASE;
  SELECT LOWER(HEX(r.k)), CAST(IF(r.expires_at <= now_us, NULL, LENGTH(r.value)) AS CHAR), CAST(r.version AS CHAR),
      CAST(r.mark AS CHAR), CAST(r.expires_at - now_us AS CHAR)
    FROM `holdfast_record` r
    WHERE r.k >= from_key AND (NOT after_it OR r.k > from_key) AND (before_key IS NULL OR r.k < before_key)
    ORDER BY r.k LIMIT most;
  COMMIT AND NO CHAIN NO RELEASE;
END
//

-- Remove rows of records that have expired, not more than `most`, and answer how many. The highest of their versions is
-- kept in the floor, which is locked after them. What is locked is in use, and left alone. What has expired a moment
-- ago is, too: a transaction of the user may be about to lock the row (see holdfast_facts).
CREATE PROCEDURE `holdfast_forget`(IN most INT) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE its_version, highest BIGINT DEFAULT 0;
  DECLARE removed INT DEFAULT 0;
  DECLARE before_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - 60000000;
  --#include declare_rollback
  --#include begin
  REPEAT
    SET own_key = NULL;
    SELECT r.k, r.version INTO own_key, its_version FROM `holdfast_record` r FORCE INDEX (expiry)
      WHERE r.expires_at <= before_us ORDER BY r.expires_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF own_key IS NOT NULL THEN
      DELETE FROM `holdfast_record` WHERE k = own_key;
      SET removed = removed + ROW_COUNT(), highest = GREATEST(highest, its_version);
    END IF;
  UNTIL own_key IS NULL OR removed >= most END REPEAT;
  UPDATE `holdfast_meta` m SET m.floor = highest WHERE m.one = 1 AND m.floor < highest;
  COMMIT AND NO CHAIN NO RELEASE;
  SET innodb_lock_wait_timeout = usual_wait;
  SELECT CAST(removed AS CHAR);
END
//
