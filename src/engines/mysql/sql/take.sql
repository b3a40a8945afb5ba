-- Draw from rate limits: the rule of core/rate.ts, on records (records.sql). All numbers are whole and below 2^53, so
-- that DOUBLE has them exactly, and rounds where the rule does. These procedures call none of the others, and have a
-- version of their own: see names.ts.

-- What is owed now for a record that this transaction has locked, in units of that rate, and since when.
CREATE PROCEDURE `holdfast_drain`(
  IN own_key VARBINARY(512), IN now_us BIGINT, IN own_token DOUBLE, IN own_step DOUBLE, IN own_step_us DOUBLE,
  IN own_capacity DOUBLE, OUT own_at DOUBLE, OUT own_debt DOUBLE, OUT its_version BIGINT, OUT its_expiry BIGINT,
  OUT is_strange BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_text VARCHAR(200) CHARACTER SET latin1;
  DECLARE its_at, its_token, its_step, its_us DOUBLE;
  SET own_at = FLOOR(now_us / own_step_us) * own_step_us, own_debt = 0, its_version = 0, is_strange = FALSE;
  SELECT IF(LENGTH(r.value) > 200, 'long', CONVERT(r.value USING latin1)), r.version, r.expires_at
    INTO its_text, its_version, its_expiry FROM `holdfast_record` r WHERE r.k = own_key FOR UPDATE;
  IF its_text IS NOT NULL AND (its_expiry IS NULL OR its_expiry > now_us) THEN
    IF its_text REGEXP '^rate1( [0-9]+){6}$' THEN
      SET its_at = SUBSTRING_INDEX(SUBSTRING_INDEX(its_text, ' ', 2), ' ', -1),
        own_debt = SUBSTRING_INDEX(SUBSTRING_INDEX(its_text, ' ', 3), ' ', -1),
        its_token = SUBSTRING_INDEX(SUBSTRING_INDEX(its_text, ' ', 4), ' ', -1),
        its_step = SUBSTRING_INDEX(SUBSTRING_INDEX(its_text, ' ', 5), ' ', -1),
        its_us = SUBSTRING_INDEX(SUBSTRING_INDEX(its_text, ' ', 6), ' ', -1);
      SET own_debt = GREATEST(0e0, own_debt - GREATEST(0e0, FLOOR((now_us - its_at) / its_us)) * its_step);
      IF its_token <> own_token OR its_step <> own_step OR its_us <> own_step_us THEN
        SET own_debt = LEAST(own_capacity, CEILING(own_debt / its_token * own_token));
      END IF;
      -- A clock that is behind by less than a second stands still.
      IF now_us < its_at AND its_at - now_us <= 1000000 THEN
        SET own_at = its_at;
      END IF;
    ELSE
      SET is_strange = TRUE;
    END IF;
  END IF;
END
//

-- `record_keys` are the keys of all draws, in their order, once each, as `key;`. A draw is `book part,part,;` and a
-- part `key cost token step step_us capacity`. The answer is one row: the time (us), and for each draw 't' if it was
-- taken, 'r' if not, each with the debts of its parts behind spaces; or '!' if a record of it is no rate limit; then
-- `;`.
--
-- Records are locked in the order of their keys, as in holdfast_put, and the clock is read when all are.
CREATE PROCEDURE `holdfast_take`(
  IN record_keys LONGTEXT CHARACTER SET ascii, IN batch LONGTEXT CHARACTER SET ascii
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE draw, parts, debts, answer LONGTEXT CHARACTER SET ascii DEFAULT '';
  DECLARE part, rate VARCHAR(1400) CHARACTER SET ascii;
  DECLARE keys_left LONGTEXT CHARACTER SET ascii DEFAULT record_keys;
  DECLARE verdict CHAR(1) CHARACTER SET ascii;
  DECLARE is_writing, is_strange BOOLEAN DEFAULT FALSE;
  DECLARE now_us, its_version, its_expiry, lives BIGINT;
  DECLARE book, cost, own_token, own_step, own_step_us, own_capacity, own_at, own_debt DOUBLE;
  --#include declare_rollback

  --#include begin
  WHILE keys_left <> '' DO
    SET part = SUBSTRING_INDEX(keys_left, ';', 1), keys_left = SUBSTRING(keys_left, LENGTH(part) + 2);
    INSERT INTO `holdfast_record` (k, version, mark) VALUES (UNHEX(part), 0, 0)
      ON DUPLICATE KEY UPDATE version = version;
  END WHILE;
  SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  WHILE batch <> '' DO
    SET draw = SUBSTRING_INDEX(batch, ';', 1), batch = SUBSTRING(batch, LENGTH(draw) + 2);
    SET book = SUBSTRING_INDEX(draw, ' ', 1), draw = SUBSTRING(draw, LENGTH(SUBSTRING_INDEX(draw, ' ', 1)) + 2);
    -- Twice through the parts: to decide, and to take.
    SET verdict = 't', debts = '', parts = draw, is_writing = FALSE;
    WHILE parts <> '' DO
      SET part = SUBSTRING_INDEX(parts, ',', 1), parts = SUBSTRING(parts, LENGTH(part) + 2);
      SET own_key = UNHEX(SUBSTRING_INDEX(part, ' ', 1)),
        cost = SUBSTRING_INDEX(SUBSTRING_INDEX(part, ' ', 2), ' ', -1),
        rate = SUBSTRING_INDEX(part, ' ', -4);
      SET own_token = SUBSTRING_INDEX(rate, ' ', 1),
        own_step = SUBSTRING_INDEX(SUBSTRING_INDEX(rate, ' ', 2), ' ', -1),
        own_step_us = SUBSTRING_INDEX(SUBSTRING_INDEX(rate, ' ', 3), ' ', -1),
        own_capacity = SUBSTRING_INDEX(rate, ' ', -1);
      CALL `holdfast_drain`(
        own_key, now_us, own_token, own_step, own_step_us, own_capacity, own_at, own_debt, its_version, its_expiry,
        is_strange);
      IF NOT is_writing THEN
        IF is_strange THEN
          SET verdict = '!';
        ELSEIF own_debt + cost * own_token > own_capacity + FLOOR(book / own_step_us) * own_step AND verdict <> '!' THEN
          SET verdict = 'r';
        END IF;
      ELSE
        IF verdict = 't' THEN
          SET own_debt = own_debt + cost * own_token;
        END IF;
        SET debts = CONCAT(debts, ' ', CAST(own_debt AS SIGNED));
        IF verdict = 't' AND cost > 0 THEN
          IF its_version = 0 THEN
            -- As in holdfast_put_record.
            SELECT m.floor INTO its_version FROM `holdfast_meta` m WHERE m.one = 1;
          END IF;
          -- The expiry is set later than needed, and rarely, because each change of it changes an index.
          SET lives = LEAST(CEILING(own_debt / own_step) * own_step_us, 3e15);
          IF its_expiry IS NULL OR its_expiry < now_us + lives THEN
            SET its_expiry = now_us + lives + LEAST(lives, 86400000000) + 60000000;
          END IF;
          UPDATE `holdfast_record` r
            SET r.value = CONCAT('rate1 ', CAST(own_at AS SIGNED), ' ', CAST(own_debt AS SIGNED), ' ', rate),
              r.version = GREATEST(its_version + 1, now_us), r.mark = 0, r.expires_at = its_expiry
            WHERE r.k = own_key;
        END IF;
      END IF;
      IF parts = '' AND NOT is_writing AND verdict <> '!' THEN
        SET is_writing = TRUE, parts = draw;
      END IF;
    END WHILE;
    SET answer = CONCAT(answer, verdict, debts, ';');
  END WHILE;
  -- Rows that were made to be locked, and were not needed.
  WHILE record_keys <> '' DO
    SET part = SUBSTRING_INDEX(record_keys, ';', 1), record_keys = SUBSTRING(record_keys, LENGTH(part) + 2);
    DELETE FROM `holdfast_record` WHERE k = UNHEX(part) AND version = 0;
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  SET innodb_lock_wait_timeout = usual_wait;
  SELECT CAST(now_us AS CHAR), answer;
END
//
