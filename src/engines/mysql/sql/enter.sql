-- Enter lines. The batch has claims in the order of their keys, each `key id holder weight limit ttl waits;`, with key,
-- id and holder in hexadecimal. `engine_id` is that of the engine that calls. `patient`: wait a moment for a line that
-- another transaction has locked; else leave that claim out.
--
-- Answers one row. For each claim, separated by blanks, one of
--     <token>               it holds
--     w:<ahead>:<us>        it waits, the first in line; q, s behind others (see holdfast_wait_answer)
--     b:<ahead>             busy, for a claim that does not want to wait
--     e  u  f  l            gone: evicted, or unknown; the line is full; the line is locked
-- And the news for `engine_id`.
CREATE PROCEDURE `holdfast_enter`(
  IN batch LONGTEXT CHARACTER SET ascii, IN engine_id BINARY(16), IN patient BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key, own_holder VARBINARY(512);
  DECLARE own_id BINARY(16);
  DECLARE own_weight, own_lim INT;
  DECLARE own_ttl BIGINT;
  DECLARE own_waits, is_locked BOOLEAN DEFAULT FALSE;
  -- The crowd that is open: one that several claims name is read once.
  DECLARE open_key VARBINARY(512);
  DECLARE first_token, first_expiry BIGINT;
  --#include declare_line
  DECLARE claim TEXT CHARACTER SET ascii;
  DECLARE answer VARCHAR(64) CHARACTER SET ascii;
  DECLARE answers LONGTEXT CHARACTER SET ascii DEFAULT '';
  --#include declare_rollback

  CALL `holdfast_begin_call`();
  claims: WHILE batch <> '' DO
    SET claim = SUBSTRING_INDEX(batch, ';', 1);
    SET own_key = UNHEX(SUBSTRING_INDEX(claim, ' ', 1)),
      own_id = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(claim, ' ', 2), ' ', -1));
    SET own_holder = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(claim, ' ', 3), ' ', -1));
    SET own_weight = SUBSTRING_INDEX(SUBSTRING_INDEX(claim, ' ', 4), ' ', -1),
      own_lim = SUBSTRING_INDEX(SUBSTRING_INDEX(claim, ' ', 5), ' ', -1);
    SET own_ttl = SUBSTRING_INDEX(SUBSTRING_INDEX(claim, ' ', 6), ' ', -1), own_waits = SUBSTRING_INDEX(claim, ' ', -1);
    IF NOT patient THEN
      CALL `holdfast_try_line`(own_key, is_locked);
    END IF;
    IF is_locked THEN
      SET answer = 'l';
    ELSE
      IF NOT own_key <=> open_key THEN
        --#include open_line
        SET first_token = NULL, open_key = IF(is_crowd, own_key, NULL);
      END IF;
      IF last_token IS NULL THEN
        CALL `holdfast_make_line`(own_key, own_id, own_holder, own_weight, own_lim, own_ttl, now_us, engine_id, answer);
        IF answer = '' THEN
          ITERATE claims;
        END IF;
      ELSEIF due IS NULL THEN
        SET last_token = GREATEST(last_token + 1, now_us), answer = last_token;
        UPDATE `holdfast_line` l
          SET l.token = last_token, l.due_at = now_us + own_ttl, l.id = own_id, l.holder = own_holder,
            l.client = engine_id, l.weight = own_weight, l.lim = own_lim, l.ttl = own_ttl, l.since = now_us,
            l.evicted = 0, l.outlives = 0
          WHERE l.k = own_key;
      ELSEIF its_id = own_id THEN
        SET answer = IF(is_evicted, 'e', last_token);
        UPDATE `holdfast_line` l
          SET l.due_at = IF(l.outlives, GREATEST(l.due_at, now_us + own_ttl), now_us + own_ttl), l.ttl = own_ttl
          WHERE l.k = own_key AND NOT is_evicted;
      ELSE
        CALL `holdfast_enter_line`(
          own_key, own_id, own_holder, own_weight, own_lim, own_ttl, own_waits, engine_id,
          now_us, last_token, due, is_crowd, held, held_weight, held_lim, held_until, waiting,
          first_token, first_expiry, answer);
      END IF;
    END IF;
    SET answers = CONCAT(answers, answer, ' '), batch = SUBSTRING(batch, LENGTH(claim) + 2);
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  --#include finish
  SELECT answers, @holdfast_news;
END
//

-- Enter a line that has no row. The answer is '' if another call was faster, and then the claim is begun anew. That
-- call may have been an earlier one for the same entry: then the entry has to be renewed, or it could expire before the
-- time that this call answers.
CREATE PROCEDURE `holdfast_make_line`(
  IN own_key VARBINARY(512), IN own_id BINARY(16), IN own_holder VARBINARY(512),
  IN own_weight INT, IN own_lim INT, IN own_ttl BIGINT, IN now_us BIGINT, IN engine_id BINARY(16),
  OUT answer VARCHAR(64) CHARACTER SET ascii
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_token, lowest BIGINT;
  -- The second of two calls waits here, and then has the row locked. With INSERT IGNORE, two calls that wait for a
  -- third could end in a deadlock.
  INSERT INTO `holdfast_line` (k, token, due_at, id, holder, client, weight, lim, ttl, since)
    VALUES (own_key, now_us, now_us + own_ttl, own_id, own_holder, engine_id, own_weight, own_lim, own_ttl, now_us)
    ON DUPLICATE KEY UPDATE k = own_key;
  -- A statement of its own: it sees the floor that was raised when the row of this line was removed.
  SELECT l.token, m.floor INTO own_token, lowest FROM `holdfast_line` l JOIN `holdfast_meta` m ON m.one = 1
    WHERE l.k = own_key AND l.id = own_id AND l.due_at = now_us + own_ttl;
  IF own_token IS NULL THEN
    SET answer = '';
  ELSE
    IF own_token <= lowest THEN
      SET own_token = lowest + 1;
      UPDATE `holdfast_line` l SET l.token = own_token WHERE l.k = own_key;
    END IF;
    SET answer = own_token;
  END IF;
END
//

-- Enter a line in which other entries are. If it was a crowd before, the parameters about it are as it is afterwards.
CREATE PROCEDURE `holdfast_enter_line`(
  IN own_key VARBINARY(512), IN own_id BINARY(16), IN own_holder VARBINARY(512),
  IN own_weight INT, IN own_lim INT, IN own_ttl BIGINT, IN own_waits BOOLEAN, IN engine_id BINARY(16),
  IN now_us BIGINT, INOUT last_token BIGINT, INOUT due BIGINT, IN is_crowd BOOLEAN,
  INOUT held INT, INOUT held_weight BIGINT, INOUT held_lim INT, INOUT held_until BIGINT, INOUT waiting INT,
  INOUT first_token BIGINT, INOUT first_expiry BIGINT, OUT answer VARCHAR(64) CHARACTER SET ascii
) SQL SECURITY INVOKER
joining: BEGIN
  DECLARE own_token BIGINT DEFAULT GREATEST(last_token + 1, now_us);
  DECLARE holds BOOLEAN DEFAULT waiting = 0 AND held_weight + own_weight <= LEAST(held_lim, own_lim);
  DECLARE is_full BOOLEAN DEFAULT held + waiting >= 10000;
  DECLARE is_refused BOOLEAN DEFAULT is_full OR NOT (holds OR own_waits);
  DECLARE CONTINUE HANDLER FOR 1062 SET is_refused = TRUE;

  IF NOT is_crowd AND NOT is_refused THEN
    CALL `holdfast_make_crowd`(own_key);
  END IF;
  IF NOT is_refused THEN
    -- Fails if it is there already.
    INSERT INTO `holdfast_entry` (k, token, id, holder, client, weight, lim, ttl, expires_at, since, held_since)
      VALUES (
        own_key, own_token, own_id, own_holder, engine_id, own_weight, own_lim, own_ttl,
        now_us + own_ttl, now_us, IF(holds, now_us, NULL));
  END IF;
  IF is_refused THEN
    SET answer = 'u';
    IF is_crowd THEN
      CALL `holdfast_renew_entry`(
        own_key, own_id, own_ttl, FALSE, now_us, engine_id, due, held_until, first_token, first_expiry, answer);
    END IF;
    IF answer = 'u' THEN
      SET answer = IF(holds OR own_waits, 'f', CONCAT('b:', held + waiting));
    END IF;
    LEAVE joining;
  END IF;

  SET last_token = own_token, due = LEAST(due, now_us + own_ttl);
  IF holds THEN
    -- From left to right: held_lims asks for what held_lim was.
    UPDATE `holdfast_line` l
      SET l.token = own_token, l.due_at = due, l.held = l.held + 1, l.held_weight = l.held_weight + own_weight,
        l.held_lims = IF(own_lim < l.held_lim, 1, l.held_lims + (own_lim = l.held_lim)),
        l.held_lim = LEAST(l.held_lim, own_lim), l.held_until = own_token
      WHERE l.k = own_key;
    SET held = held + 1, held_weight = held_weight + own_weight, held_lim = LEAST(held_lim, own_lim),
      held_until = own_token, answer = own_token;
  ELSE
    UPDATE `holdfast_line` l SET l.token = own_token, l.due_at = due, l.waiting = l.waiting + 1 WHERE l.k = own_key;
    CALL `holdfast_wait_answer`(
      own_key, own_token, own_ttl, due, held_until, held + waiting, now_us, engine_id,
      first_token, first_expiry, answer);
    SET waiting = waiting + 1;
  END IF;
END
//
