-- Renew entries. The batch has places in the order of their keys, each `key id ttl outlives;`, with key and id in
-- hexadecimal; `patient` as in holdfast_enter. `outlives` is 1 for an entry that is to stand in the line without its
-- process: a plain renewal that was sent before, and comes late, does not cut it short. A holder may expire earlier by
-- this than before, so the first waiter is told to look again. Answers one row: for each place, separated by blanks,
-- its token if it holds, where it stands if it waits (see holdfast_wait_answer), or `e`, `u`, `l` as in holdfast_enter;
-- and the news for `engine_id`.
--
-- A waiter's renewal is also its poll: entries ahead of it that have expired go.
CREATE PROCEDURE `holdfast_renew`(
  IN batch LONGTEXT CHARACTER SET ascii,
  IN its_keys LONGTEXT CHARACTER SET ascii, IN its_ids LONGTEXT CHARACTER SET ascii, IN size INT,
  IN engine_id BINARY(16), IN patient BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE own_id BINARY(16);
  DECLARE own_ttl BIGINT;
  DECLARE own_outlives, is_locked BOOLEAN DEFAULT FALSE;
  -- The crowd that is open: one that several places are in is read once.
  DECLARE open_key VARBINARY(512);
  DECLARE first_token, first_expiry BIGINT;
  --#include declare_line
  DECLARE place TEXT CHARACTER SET ascii;
  DECLARE answer VARCHAR(64) CHARACTER SET ascii;
  DECLARE answers LONGTEXT CHARACTER SET ascii DEFAULT '';
  --#include declare_rollback

  CALL `holdfast_begin_call`();
  IF patient AND its_keys <> '' THEN
    CALL `holdfast_renew_all`(
      its_keys, its_ids, size,
      SUBSTRING_INDEX(SUBSTRING_INDEX(SUBSTRING_INDEX(batch, ';', 1), ' ', 3), ' ', -1), answers);
    SET batch = IF(answers = '', batch, '');
  END IF;
  WHILE batch <> '' DO
    SET place = SUBSTRING_INDEX(batch, ';', 1), batch = SUBSTRING(batch, LENGTH(place) + 2);
    SET own_key = UNHEX(SUBSTRING_INDEX(place, ' ', 1)),
      own_id = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(place, ' ', 2), ' ', -1));
    SET own_ttl = SUBSTRING_INDEX(SUBSTRING_INDEX(place, ' ', 3), ' ', -1),
      own_outlives = SUBSTRING_INDEX(place, ' ', -1);
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
      IF is_crowd THEN
        CALL `holdfast_renew_entry`(
          own_key, own_id, own_ttl, own_outlives, now_us, engine_id, due, held_until,
          first_token, first_expiry, answer);
        IF own_outlives AND answer REGEXP '^[0-9]' THEN
          CALL `holdfast_tell_first`(own_key, held_until, 0, now_us, engine_id);
        END IF;
      ELSEIF its_id IS NULL OR its_id <> own_id THEN
        SET answer = 'u';
      ELSEIF is_evicted THEN
        SET answer = 'e';
      ELSE
        UPDATE `holdfast_line` l
          SET l.due_at = IF(l.outlives > own_outlives, GREATEST(l.due_at, now_us + own_ttl), now_us + own_ttl),
            l.outlives = l.outlives OR own_outlives, l.ttl = own_ttl
          WHERE l.k = own_key;
        SET answer = last_token;
      END IF;
    END IF;
    SET answers = CONCAT(answers, answer, ' ');
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  --#include finish
  SELECT answers, @holdfast_news;
END
//
