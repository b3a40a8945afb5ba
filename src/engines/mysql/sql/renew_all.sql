-- A whole batch of renewals at once. What nearly always happens is that each entry is alone in its line. Then a batch
-- is two statements, and not several for each item. If it is otherwise, nothing has happened, the answer is '', and the
-- batch goes item by item.
--
-- `its_keys` and `its_ids` are lists of literals, in the order of the keys, and no key is there twice. Statements are
-- put together here, since a procedure has no lists for parameters. They lock in the order of keys, as all calls do. A
-- batch that gives up lets go of all locks, and begins anew. (Entering and leaving need no procedure for this: see
-- plain-statements.ts.)

-- Run @holdfast_sql. (No parameter either: see line.sql.)
CREATE PROCEDURE `holdfast_run_sql`(OUT changed INT) SQL SECURITY INVOKER
BEGIN
  PREPARE holdfast_statement FROM @holdfast_sql;
  EXECUTE holdfast_statement;
  SET changed = ROW_COUNT();
  DEALLOCATE PREPARE holdfast_statement;
END
//

-- Renew all these entries, which have one ttl. The time is from before the statement waited for rows, and a later
-- renewal may have been answered meanwhile: so an entry that has that ttl already is not cut short, unless by a clock
-- that was set back far. If each entry is alone in its line, answers rows of their tokens, in the order of the batch.
CREATE PROCEDURE `holdfast_renew_all`(
  IN its_keys LONGTEXT CHARACTER SET ascii, IN its_ids LONGTEXT CHARACTER SET ascii, IN size INT, IN own_ttl BIGINT,
  OUT answer VARCHAR(64) CHARACTER SET ascii
) SQL SECURITY INVOKER
BEGIN
  DECLARE changed INT;
  DECLARE places LONGTEXT CHARACTER SET ascii
    DEFAULT CONCAT(' WHERE k IN (', its_keys, ') AND id = ELT(FIELD(k, ', its_keys, '), ', its_ids, ')');
  SET @holdfast_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), @holdfast_ttl = own_ttl, answer = '';
  SET @holdfast_sql = CONCAT(
    'UPDATE `holdfast_line` FORCE INDEX (PRIMARY)
      SET due_at = IF(outlives OR ttl = @holdfast_ttl AND due_at - @holdfast_now < @holdfast_ttl + 60000000,
        GREATEST(due_at, @holdfast_now + @holdfast_ttl), @holdfast_now + @holdfast_ttl),
      ttl = @holdfast_ttl', places, ' AND evicted = 0 AND due_at > @holdfast_now');
  CALL `holdfast_run_sql`(changed);
  IF changed = size THEN
    SET @holdfast_sql = CONCAT('SELECT CAST(token AS CHAR) FROM `holdfast_line`', places, ' ORDER BY k');
    CALL `holdfast_run_sql`(changed);
    SET answer = 'rows';
  ELSEIF changed > 0 THEN
    ROLLBACK AND NO CHAIN NO RELEASE;
    CALL `holdfast_begin_call`();
  END IF;
END
//
