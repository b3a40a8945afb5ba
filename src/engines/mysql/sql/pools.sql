-- Pools: stock of which parts are held for a while. The rule is core/pool-rule.ts, and this is the same in
-- procedures, step by step, under the same names. (The tables are in tables.sql.) These procedures call none of the
-- others, and have a version of their own: see names.ts. Lines of a step are one text: item and quantity by turns,
-- separated by line feeds.

-- So many times the units of these lines are held, and sold, than were before.
CREATE PROCEDURE `holdfast_pool_move`(
  IN own_key VARBINARY(512), IN its_lines MEDIUMBLOB, IN to_held INT, IN to_sold INT
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_item VARBINARY(128);
  DECLARE quantity BIGINT;
  WHILE its_lines <> '' DO
    SET its_item = SUBSTRING_INDEX(its_lines, '\n', 1),
      quantity = SUBSTRING_INDEX(SUBSTRING_INDEX(its_lines, '\n', 2), '\n', -1),
      its_lines = SUBSTRING(its_lines, LENGTH(SUBSTRING_INDEX(its_lines, '\n', 2)) + 2);
    UPDATE `holdfast_pool_item` i SET i.held = i.held + to_held * quantity, i.sold = i.sold + to_sold * quantity
      WHERE i.k = own_key AND i.item = its_item;
  END WHILE;
END
//

-- The items of these lines are wanted by `new_id`; if `old_id` is not null, then only those that it wants.
CREATE PROCEDURE `holdfast_pool_want`(
  IN own_key VARBINARY(512), IN its_lines MEDIUMBLOB, IN old_id VARBINARY(256), IN new_id VARBINARY(256),
  IN until_us BIGINT
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_item VARBINARY(128);
  WHILE its_lines <> '' DO
    SET its_item = SUBSTRING_INDEX(its_lines, '\n', 1),
      its_lines = SUBSTRING(its_lines, LENGTH(SUBSTRING_INDEX(its_lines, '\n', 2)) + 2);
    UPDATE `holdfast_pool_item` i SET i.wanted_by = new_id, i.wanted_until = until_us
      WHERE i.k = own_key AND i.item = its_item AND (old_id IS NULL OR i.wanted_by = old_id)
        AND (i.wanted_by <> '' OR new_id <> '');
  END WHILE;
END
//

-- Whether an id that is the first in line wants one of these items.
CREATE PROCEDURE `holdfast_is_wanted`(
  IN own_key VARBINARY(512), IN its_lines MEDIUMBLOB, IN now_us BIGINT, OUT wanted BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_item VARBINARY(128);
  SET wanted = FALSE;
  WHILE its_lines <> '' AND NOT wanted DO
    SET its_item = SUBSTRING_INDEX(its_lines, '\n', 1),
      its_lines = SUBSTRING(its_lines, LENGTH(SUBSTRING_INDEX(its_lines, '\n', 2)) + 2);
    SELECT TRUE INTO wanted FROM `holdfast_pool_item` i
      WHERE i.k = own_key AND i.item = its_item AND i.wanted_by <> ''
        AND i.wanted_until > now_us AND i.wanted_until <= now_us + 60000000;
  END WHILE;
END
//

-- Take back a hundred holds that have lapsed: their units are there again. `more`: there may be more of them.
CREATE PROCEDURE `holdfast_take_back`(
  IN own_key VARBINARY(512), IN now_us BIGINT, OUT more BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_id VARBINARY(256);
  DECLARE its_lines MEDIUMBLOB;
  DECLARE taken INT DEFAULT 0;
  REPEAT
    SET own_id = NULL;
    -- Its one row is read as the smallest of one, because a SELECT with a LIMIT may be skipped (see below).
    SELECT MIN(first.id), MIN(first.units) INTO own_id, its_lines FROM (
      SELECT h.id, h.units FROM `holdfast_pool_hold` h
        WHERE h.k = own_key AND h.state = 0 AND h.due_at <= now_us ORDER BY h.due_at LIMIT 1) first;
    IF own_id IS NOT NULL THEN
      DELETE FROM `holdfast_pool_hold` WHERE k = own_key AND id = own_id;
      IF ROW_COUNT() <> 1 THEN
        --#include interrupted
      END IF;
      CALL `holdfast_pool_move`(own_key, its_lines, -1, 0);
      SET taken = taken + 1;
    END IF;
  UNTIL own_id IS NULL OR taken = 100 END REPEAT;
  SET more = taken = 100;
END
//

-- Whether a line lacks, when all that could help was taken back: `verdict` is null if none does, else `unknown` or
-- `short`, with the item, and when the next hold lapses (ms), or -1. `what` is the verb, or `first` for a `reserve` of
-- the first in line.
CREATE PROCEDURE `holdfast_pool_lacks`(
  IN own_key VARBINARY(512), IN what VARCHAR(16) CHARACTER SET ascii, IN own_id VARBINARY(256),
  IN its_lines MEDIUMBLOB, IN flag BOOLEAN, IN now_us BIGINT,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT words MEDIUMBLOB, OUT next_ms BIGINT
) SQL SECURITY INVOKER
BEGIN
  DECLARE lines_left MEDIUMBLOB;
  DECLARE its_item VARBINARY(128);
  DECLARE quantity, its_stock, its_sold, its_held, its_want BIGINT;
  DECLARE its_wanter VARBINARY(256);
  DECLARE may_be_new BOOLEAN DEFAULT what IN ('set', 'add');
  DECLARE more BOOLEAN DEFAULT TRUE;
  DECLARE looking BOOLEAN DEFAULT TRUE;
  WHILE looking DO
    SET verdict = NULL, words = '', next_ms = 0, lines_left = its_lines;
    WHILE lines_left <> '' AND verdict IS NULL DO
      SET its_item = SUBSTRING_INDEX(lines_left, '\n', 1),
        quantity = SUBSTRING_INDEX(SUBSTRING_INDEX(lines_left, '\n', 2), '\n', -1),
        lines_left = SUBSTRING(lines_left, LENGTH(SUBSTRING_INDEX(lines_left, '\n', 2)) + 2),
        its_stock = NULL, its_sold = 0, its_held = 0, its_wanter = '', its_want = 0;
      SELECT i.stock, i.sold, i.held, i.wanted_by, i.wanted_until
        INTO its_stock, its_sold, its_held, its_wanter, its_want
        FROM `holdfast_pool_item` i WHERE i.k = own_key AND i.item = its_item;
      SET verdict = CASE
        WHEN its_stock IS NULL AND NOT may_be_new THEN 'unknown'
        WHEN may_be_new THEN
          IF(quantity + IF(what = 'add', IFNULL(its_stock, 0), 0) < IF(flag, 0, its_sold + its_held), 'short', NULL)
        WHEN its_stock - its_sold - its_held < quantity THEN 'short'
        WHEN what = 'reserve' AND its_wanter <> '' AND its_wanter <> own_id
          AND its_want > now_us AND its_want <= now_us + 60000000 THEN 'short' END;
    END WHILE;
    SET looking = IFNULL(verdict = 'short' AND more, FALSE);
    IF looking THEN
      CALL `holdfast_take_back`(own_key, now_us, more);
    END IF;
  END WHILE;
  IF verdict IS NOT NULL THEN
    SET words = its_item;
  END IF;
  IF verdict = 'short' THEN
    CALL `holdfast_next_lapse`(own_key, now_us, next_ms);
  END IF;
END
//

-- When the next hold lapses (ms), or -1.
CREATE PROCEDURE `holdfast_next_lapse`(
  IN own_key VARBINARY(512), IN now_us BIGINT, OUT next_ms BIGINT
) SQL SECURITY INVOKER
BEGIN
  DECLARE next_us BIGINT;
  SELECT h.due_at INTO next_us FROM `holdfast_pool_hold` h
    WHERE h.k = own_key AND h.state = 0 ORDER BY h.due_at LIMIT 1;
  SET next_ms = IFNULL(GREATEST(0, CEILING((next_us - now_us) / 1000)), -1);
END
//

-- What there is: of each item itself, stock, sold and held.
CREATE PROCEDURE `holdfast_pool_show`(
  IN own_key VARBINARY(512), IN now_us BIGINT, OUT words LONGBLOB, OUT next_ms BIGINT, OUT holds BIGINT
) SQL SECURITY INVOKER
BEGIN
  DECLARE more BOOLEAN;
  DECLARE usual_length BIGINT UNSIGNED DEFAULT @@group_concat_max_len;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    SET group_concat_max_len = usual_length;
    RESIGNAL;
  END;
  REPEAT
    CALL `holdfast_take_back`(own_key, now_us, more);
  UNTIL NOT more END REPEAT;
  SET group_concat_max_len = 16777216;
  SELECT IFNULL(GROUP_CONCAT(i.item, '\n', i.stock, '\n', i.sold, '\n', i.held SEPARATOR '\n'), '') INTO words
    FROM `holdfast_pool_item` i WHERE i.k = own_key;
  SET group_concat_max_len = usual_length;
  CALL `holdfast_next_lapse`(own_key, now_us, next_ms);
  SELECT COUNT(*) INTO holds FROM `holdfast_pool_hold` h WHERE h.k = own_key AND h.state = 0;
END
//

-- One step on a pool that is locked. The answer is four words, as in engines/shared/pool-codec.ts.
CREATE PROCEDURE `holdfast_pool_step`(
  IN own_key VARBINARY(512), IN verb VARCHAR(16) CHARACTER SET ascii, IN own_id VARBINARY(256),
  IN own_lines MEDIUMBLOB, IN life_ms BIGINT, IN want_ms BIGINT, IN flag BOOLEAN, IN now_us BIGINT,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT words LONGBLOB, OUT number_1 BIGINT, OUT number_2 BIGINT
) SQL SECURITY INVOKER
its_step: BEGIN
  DECLARE its_lines MEDIUMBLOB;
  DECLARE lines_left MEDIUMBLOB DEFAULT own_lines;
  DECLARE its_item VARBINARY(128);
  DECLARE its_state TINYINT;
  DECLARE its_due, quantity BIGINT;
  DECLARE until_us BIGINT DEFAULT now_us + life_ms * 1000;
  SET verdict = NULL, words = '', number_1 = 0, number_2 = 0;
  IF verb = 'show' THEN
    CALL `holdfast_pool_show`(own_key, now_us, words, number_1, number_2);
    SET verdict = 'pool';
    LEAVE its_step;
  END IF;
  IF verb = 'unwant' THEN
    CALL `holdfast_pool_want`(own_key, own_lines, own_id, '', 0);
    SET verdict = 'gone';
    LEAVE its_step;
  END IF;
  SELECT h.state, h.units, h.due_at INTO its_state, its_lines, its_due
    FROM `holdfast_pool_hold` h WHERE h.k = own_key AND h.id = own_id;
  IF its_due <= now_us THEN
    -- What is due is gone, and given back if it was held.
    DELETE FROM `holdfast_pool_hold` WHERE k = own_key AND id = own_id;
    IF ROW_COUNT() <> 1 THEN
      --#include interrupted
    END IF;
    IF its_state = 0 THEN
      CALL `holdfast_pool_move`(own_key, its_lines, -1, 0);
    END IF;
    SET its_state = NULL;
  END IF;

  IF verb = 'reserve' AND its_state IS NULL THEN
    CALL `holdfast_pool_lacks`(
      own_key, IF(want_ms > 0, 'first', verb), own_id, own_lines, flag, now_us, verdict, words, number_1);
    IF verdict IS NOT NULL THEN
      IF want_ms > 0 THEN
        CALL `holdfast_pool_want`(own_key, own_lines, NULL, own_id, now_us + want_ms * 1000);
      END IF;
      LEAVE its_step;
    END IF;
    CALL `holdfast_pool_move`(own_key, own_lines, 1, 0);
    CALL `holdfast_pool_want`(own_key, own_lines, IF(want_ms > 0, NULL, own_id), '', 0);
    INSERT INTO `holdfast_pool_hold` (k, id, state, units, due_at) VALUES (own_key, own_id, 0, own_lines, until_us);
    SET its_state = 0, its_lines = own_lines, its_due = until_us;
  ELSEIF verb = 'reserve' AND its_lines <> own_lines THEN
    SET verdict = 'differs', words = its_lines;
    LEAVE its_step;
  ELSEIF verb = 'extend' AND its_state = 0 AND its_due < until_us THEN
    UPDATE `holdfast_pool_hold` h SET h.due_at = until_us WHERE h.k = own_key AND h.id = own_id;
    SET its_due = until_us;
  ELSEIF verb = 'confirm' AND its_state = 0 THEN
    CALL `holdfast_pool_move`(own_key, its_lines, -1, 1);
    UPDATE `holdfast_pool_hold` h SET h.state = 1, h.due_at = until_us WHERE h.k = own_key AND h.id = own_id;
    SET its_state = 1;
  ELSEIF verb = 'confirm' AND its_state IS NULL AND flag THEN
    -- The buyer has paid: it goes before those that wait.
    CALL `holdfast_pool_lacks`(own_key, verb, own_id, own_lines, flag, now_us, verdict, words, number_1);
    IF verdict IS NULL THEN
      CALL `holdfast_pool_move`(own_key, own_lines, 0, 1);
      INSERT INTO `holdfast_pool_hold` (k, id, state, units, due_at) VALUES (own_key, own_id, 1, own_lines, until_us);
      SET its_state = 1, its_lines = own_lines;
    END IF;
    SET number_1 = 0;
  ELSEIF verb = 'cancel' AND its_state = 0 THEN
    DELETE FROM `holdfast_pool_hold` WHERE k = own_key AND id = own_id;
    IF ROW_COUNT() <> 1 THEN
      --#include interrupted
    END IF;
    CALL `holdfast_pool_move`(own_key, its_lines, -1, 0);
    CALL `holdfast_is_wanted`(own_key, its_lines, now_us, number_1);
    SET verdict = 'cancelled';
    LEAVE its_step;
  ELSEIF verb IN ('set', 'add') THEN
    IF its_state IS NULL THEN
      CALL `holdfast_pool_lacks`(own_key, verb, own_id, own_lines, flag, now_us, verdict, words, number_1);
      IF verdict IS NOT NULL THEN
        LEAVE its_step;
      END IF;
      WHILE lines_left <> '' DO
        SET its_item = SUBSTRING_INDEX(lines_left, '\n', 1),
          quantity = SUBSTRING_INDEX(SUBSTRING_INDEX(lines_left, '\n', 2), '\n', -1),
          lines_left = SUBSTRING(lines_left, LENGTH(SUBSTRING_INDEX(lines_left, '\n', 2)) + 2);
        INSERT INTO `holdfast_pool_item` (k, item, stock, sold, held, wanted_by, wanted_until)
          VALUES (own_key, its_item, quantity, 0, 0, '', 0)
          ON DUPLICATE KEY UPDATE stock = quantity + IF(verb = 'add', stock, 0);
      END WHILE;
      INSERT INTO `holdfast_pool_hold` (k, id, state, units, due_at) VALUES (own_key, own_id, 2, own_lines, until_us);
    END IF;
    CALL `holdfast_is_wanted`(own_key, own_lines, now_us, number_1);
    SET verdict = 'changed';
    LEAVE its_step;
  END IF;

  SET verdict = CASE its_state WHEN 0 THEN 'held' WHEN 1 THEN 'sold' ELSE 'gone' END,
    words = IF(its_state IN (0, 1), its_lines, ''),
    number_1 = IF(its_state = 0, FLOOR((its_due - now_us) / 1000), 0);
END
//

-- Steps, in the order of the batch. `pools` are the keys of all, in their order, once each, as `key;`. A step is
-- `key verb id lines ms want_ms flag;`, with key, id and lines in hexadecimal. The answer is one row: of each step its
-- four words, the second one in hexadecimal, then `;`.
--
-- The rows of the pools are locked, in the order of their keys, before the clock and anything else is read. What
-- belongs to a pool is changed under that lock only.
CREATE PROCEDURE `holdfast_hold`(
  IN pools LONGTEXT CHARACTER SET ascii, IN batch LONGTEXT CHARACTER SET ascii
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE own_lines MEDIUMBLOB;
  DECLARE words LONGBLOB;
  DECLARE item LONGTEXT CHARACTER SET ascii;
  DECLARE answer LONGTEXT CHARACTER SET ascii DEFAULT '';
  DECLARE keys_left LONGTEXT CHARACTER SET ascii DEFAULT pools;
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE now_us, number_1, number_2 BIGINT;
  DECLARE is_used BOOLEAN;
  --#include declare_rollback

  --#include begin
  WHILE keys_left <> '' DO
    SET item = SUBSTRING_INDEX(keys_left, ';', 1), keys_left = SUBSTRING(keys_left, LENGTH(item) + 2);
    INSERT INTO `holdfast_pool` (k) VALUES (UNHEX(item)) ON DUPLICATE KEY UPDATE k = k;
  END WHILE;
  SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  WHILE batch <> '' DO
    SET item = SUBSTRING_INDEX(batch, ';', 1), batch = SUBSTRING(batch, LENGTH(item) + 2);
    SET own_key = UNHEX(SUBSTRING_INDEX(item, ' ', 1)),
      own_lines = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 4), ' ', -1));
    CALL `holdfast_pool_step`(
      own_key, SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 2), ' ', -1),
      UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 3), ' ', -1)), own_lines,
      SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 5), ' ', -1), SUBSTRING_INDEX(SUBSTRING_INDEX(item, ' ', 6), ' ', -1),
      SUBSTRING_INDEX(item, ' ', -1), now_us, verdict, words, number_1, number_2);
    SET answer = CONCAT(answer, verdict, ' ', HEX(words), ' ', number_1, ' ', number_2, ';');
  END WHILE;
  -- Ids that are to be forgotten: more than these steps can remember. And rows that were made to be locked, and for
  -- nothing else.
  WHILE pools <> '' DO
    SET item = SUBSTRING_INDEX(pools, ';', 1), pools = SUBSTRING(pools, LENGTH(item) + 2);
    SET own_key = UNHEX(item);
    DELETE FROM `holdfast_pool_hold` WHERE k = own_key AND state = 1 AND due_at <= now_us
      ORDER BY due_at LIMIT 1000;
    DELETE FROM `holdfast_pool_hold` WHERE k = own_key AND state = 2 AND due_at <= now_us
      ORDER BY due_at LIMIT 1000;
    SELECT MIN(first.item) IS NOT NULL INTO is_used FROM (
      SELECT i.item FROM `holdfast_pool_item` i WHERE i.k = own_key LIMIT 1) first;
    IF NOT is_used THEN
      DELETE FROM `holdfast_pool` WHERE k = own_key;
    END IF;
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  SET innodb_lock_wait_timeout = usual_wait;
  SELECT answer;
END
//
