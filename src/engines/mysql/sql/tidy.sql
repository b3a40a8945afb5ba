-- Removing the rows of empty lines.

-- Remove the rows of these lines, a list of literals, if they are free. The highest of their tokens is kept, as a floor
-- for the tokens of entries that come later.
--
-- The floor is locked first. A call that enters a line without a row reads the floor in one of two ways. Either after
-- the new row is there (see holdfast_make_line): then it sees the floor of rows that were removed before. Or with a
-- lock of its own (see plain-statements.ts): then it does not read the floor while rows are on their way out.
CREATE PROCEDURE `holdfast_tidy`(
  IN its_keys LONGTEXT CHARACTER SET ascii, IN engine_id BINARY(16)
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_key VARBINARY(512);
  DECLARE changed INT;
  DECLARE lowest BIGINT;
  --#include declare_line
  --#include declare_rollback

  CALL `holdfast_begin_call`();
  SET @holdfast_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  -- Crowds in which all entries may have expired, one after the other.
  REPEAT
    SET @holdfast_key = NULL, @holdfast_after = own_key;
    SET @holdfast_sql = CONCAT(
      'SELECT k INTO @holdfast_key FROM `holdfast_line`',
      ' WHERE k IN (', its_keys, ') AND crowd = 1 AND due_at <= @holdfast_now
        AND (@holdfast_after IS NULL OR k > @holdfast_after) ORDER BY k LIMIT 1');
    CALL `holdfast_run_sql`(changed);
    SET own_key = @holdfast_key;
    IF own_key IS NOT NULL THEN
      --#include open_line
    END IF;
  UNTIL own_key IS NULL END REPEAT;
  COMMIT AND NO CHAIN NO RELEASE;
  -- If the rest fails, the rows are left to a later call. Waiters that hold now are told all the same.
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK AND NO CHAIN NO RELEASE;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
    SELECT m.floor INTO lowest FROM `holdfast_meta` m WHERE m.one = 1 FOR UPDATE;
    SET @holdfast_places = CONCAT(' WHERE k IN (', its_keys, ') AND crowd = 0 AND due_at <= @holdfast_now');
    SET @holdfast_sql = CONCAT(
      'SELECT MAX(token) INTO @holdfast_most FROM `holdfast_line`', @holdfast_places, ' FOR UPDATE');
    CALL `holdfast_run_sql`(changed);
    IF @holdfast_most IS NOT NULL THEN
      -- More lines may have become free since then, but none with a higher token is removed.
      SET @holdfast_sql = CONCAT('DELETE FROM `holdfast_line`', @holdfast_places, ' AND token <= @holdfast_most');
      CALL `holdfast_run_sql`(changed);
      UPDATE `holdfast_meta` m SET m.floor = @holdfast_most WHERE m.one = 1 AND @holdfast_most > lowest;
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
  --#include finish
  SELECT '', @holdfast_news;
END
//

-- Of the lines after this key, in order, look at `most`. Answers rows of the keys of those that may be free, or in
-- which an entry may have expired; and one row with the last key that was looked at, null if that was the end.
CREATE PROCEDURE `holdfast_due_lines`(IN after_key VARBINARY(512), IN most INT) SQL SECURITY INVOKER
BEGIN
  DECLARE last_key VARBINARY(512);
  COMMIT AND NO CHAIN NO RELEASE;
  SELECT l.k INTO last_key FROM `holdfast_line` l WHERE l.k > after_key ORDER BY l.k LIMIT most, 1;
  SELECT LOWER(HEX(l.k)) FROM `holdfast_line` l
    WHERE l.k > after_key AND (last_key IS NULL OR l.k <= last_key)
      AND l.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) ORDER BY l.k;
  COMMIT AND NO CHAIN NO RELEASE;
  SELECT LOWER(HEX(last_key));
END
//
