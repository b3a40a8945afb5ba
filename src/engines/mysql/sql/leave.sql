-- Leave lines, and let the waiters hold that now can. The batch has places in the order of their keys, each `key id;`,
-- in hexadecimal; `patient` as in holdfast_enter. Answers one row: for each place, separated by blanks, `1` if it was
-- in the line, which is empty now, `2` if it was and other entries are there, `0` if it was not, `l` if the line is
-- locked; and the news for `engine_id`.
CREATE PROCEDURE `holdfast_leave`(
  IN batch LONGTEXT CHARACTER SET ascii, IN engine_id BINARY(16), IN patient BOOLEAN
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE own_id BINARY(16);
  DECLARE own_token, own_held_since BIGINT;
  DECLARE own_weight, own_lim INT;
  DECLARE is_locked BOOLEAN DEFAULT FALSE;
  -- The crowd that is open: one that several places are in is read once.
  DECLARE open_key VARBINARY(512);
  --#include declare_line
  DECLARE place TEXT CHARACTER SET ascii;
  DECLARE answer VARCHAR(64) CHARACTER SET ascii;
  DECLARE answers LONGTEXT CHARACTER SET ascii DEFAULT '';
  --#include declare_rollback

  CALL `holdfast_begin_call`();
  WHILE batch <> '' DO
    SET place = SUBSTRING_INDEX(batch, ';', 1), batch = SUBSTRING(batch, LENGTH(place) + 2);
    SET own_key = UNHEX(SUBSTRING_INDEX(place, ' ', 1)), own_id = UNHEX(SUBSTRING_INDEX(place, ' ', -1));
    IF NOT patient THEN
      CALL `holdfast_try_line`(own_key, is_locked);
    END IF;
    SET answer = IF(is_locked, 'l', '0');
    IF NOT is_locked THEN
      IF NOT own_key <=> open_key THEN
        --#include open_line
      END IF;
      IF its_id = own_id THEN
        SET answer = '1';
        UPDATE `holdfast_line` l SET l.due_at = 0 WHERE l.k = own_key;
      ELSEIF is_crowd THEN
        SET own_token = NULL;
        SELECT e.token, e.weight, e.lim, e.held_since INTO own_token, own_weight, own_lim, own_held_since
          FROM `holdfast_entry` e WHERE e.k = own_key AND e.id = own_id AND e.removed = 0;
        IF own_token IS NOT NULL THEN
          DELETE FROM `holdfast_entry` WHERE k = own_key AND token = own_token;
          IF ROW_COUNT() <> 1 THEN
            --#include interrupted
          END IF;
          --#include settle_departure
          SET answer = IF(due IS NULL, '1', '2');
        END IF;
      END IF;
      SET open_key = IF(is_crowd AND due IS NOT NULL, own_key, NULL);
    END IF;
    SET answers = CONCAT(answers, answer, ' ');
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  --#include finish
  SELECT answers, @holdfast_news;
END
//
