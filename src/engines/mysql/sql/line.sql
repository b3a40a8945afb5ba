-- The rule of the line. As src/core/line.ts says: an entry holds while the sum of weights up to and including it is no
-- more than the smallest limit up to and including it.
--
-- A line is opened, which locks it; its sums are handed on, and written once, by holdfast_settle_line. `engine_id` is
-- that of the engine that calls.
--
-- When an entry begins to hold, or is evicted, or is to look again where it stands, its engine is told. The engine
-- that calls is told by @holdfast_news, which goes back with the answer (`key id token microseconds;`, without a token
-- if the entry was evicted, with `~` for one if it is to look again). Another engine is told by a mark on its entry,
-- and is put into @holdfast_wakes, the engines to be woken after the commit. (These two are no parameters, because
-- MariaDB writes the values of all parameters into the text of each statement.)

-- Lock a line, remove what has expired from it, and say what is in it. `last_token` is null if the line has no row, and
-- then nothing is locked. `due` is null if the line is empty. If one entry is alone, `its_id` is its id, and the sums
-- are about it; of a crowd, they are those of its row.
CREATE PROCEDURE `holdfast_open_line`(
  IN own_key VARBINARY(512), IN engine_id BINARY(16),
  OUT now_us BIGINT, OUT last_token BIGINT, OUT due BIGINT,
  OUT is_crowd BOOLEAN, OUT its_id BINARY(16), OUT is_evicted BOOLEAN,
  OUT held INT, OUT held_weight BIGINT, OUT held_lim INT, OUT held_lims INT, OUT held_until BIGINT, OUT waiting INT
) SQL SECURITY INVOKER
BEGIN
  SELECT l.token, l.due_at, l.crowd, l.id, l.evicted, l.held,
      IF(l.crowd, l.held_weight, l.weight), IF(l.crowd, l.held_lim, l.lim), l.held_lims, l.held_until, l.waiting
    INTO last_token, due, is_crowd, its_id, is_evicted, held,
      held_weight, held_lim, held_lims, held_until, waiting
    FROM `holdfast_line` l WHERE l.k = own_key FOR UPDATE;
  -- A statement of its own, and so after the wait for the lock.
  SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF is_crowd THEN
    IF due <= now_us THEN
      --#include settle_line
      SET is_crowd = due IS NOT NULL;
    END IF;
  ELSEIF due <= now_us THEN
    SET due = NULL, its_id = NULL;
  ELSE
    SET held = 1, held_lims = 1, held_until = last_token, waiting = 0;
  END IF;
END
//

-- Make the only entry of a line the first of a crowd. (A connection can be told that an empty text is null; a procedure
-- keeps the mode that it was made in.)
CREATE PROCEDURE `holdfast_make_crowd`(IN own_key VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
  INSERT INTO `holdfast_entry` (
      k, token, id, holder, client, weight, lim, ttl, expires_at, since, held_since, evicted, outlives)
    SELECT k, token, id, IFNULL(holder, ''), client, weight, lim, ttl, due_at, since, since, evicted, outlives
      FROM `holdfast_line` WHERE k = own_key;
  UPDATE `holdfast_line`
    SET crowd = 1, held = 1, held_weight = weight, held_lim = lim, held_lims = 1, held_until = token, waiting = 0,
      id = NULL, evicted = 0
    WHERE k = own_key;
END
//

-- Tell the engine of an entry: see above. `held_for` is null if the entry is to look again.
CREATE PROCEDURE `holdfast_tell_engine`(
  IN own_key VARBINARY(512), IN its_id BINARY(16), IN its_engine_id BINARY(16), IN its_token BIGINT, IN held_for BIGINT,
  IN engine_id BINARY(16)
) SQL SECURITY INVOKER
BEGIN
  IF its_engine_id = engine_id THEN
    SET @holdfast_news = CONCAT(
      @holdfast_news, HEX(own_key), ' ', HEX(its_id), ' ', IF(held_for IS NULL, '~', IFNULL(its_token, '')), ' ',
      IFNULL(held_for, 0), ';');
  ELSEIF LOCATE(HEX(its_engine_id), @holdfast_wakes) = 0 THEN
    SET @holdfast_wakes = CONCAT(@holdfast_wakes, HEX(its_engine_id));
  END IF;
END
//

-- Tell the engine of the first waiter of a crowd to look again: a holder can expire earlier than that waiter was told,
-- or, if the waiter with the token `gone` was before it, it is the first one only now. (Only the first one looks when
-- holders expire.) `gone` is 0 if none has gone.
CREATE PROCEDURE `holdfast_tell_first`(
  IN own_key VARBINARY(512), IN held_until BIGINT, IN gone BIGINT, IN now_us BIGINT, IN engine_id BINARY(16)
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_token BIGINT;
  DECLARE its_id, its_engine_id BINARY(16);
  SELECT e.token, e.id, e.client INTO its_token, its_id, its_engine_id
    FROM `holdfast_entry` e FORCE INDEX (PRIMARY)
    WHERE e.k = own_key AND e.token > held_until AND e.removed = 0 ORDER BY e.token LIMIT 1;
  IF its_token > gone THEN
    UPDATE `holdfast_entry` e SET e.news_at = IF(e.client = engine_id, NULL, now_us)
      WHERE e.k = own_key AND e.token = its_token;
    CALL `holdfast_tell_engine`(own_key, its_id, its_engine_id, NULL, NULL, engine_id);
  END IF;
END
//

-- Remove from a crowd what has expired, and find out what expires next: `due` is null after it if nothing is left.
CREATE PROCEDURE `holdfast_drop_expired`(
  IN own_key VARBINARY(512), IN now_us BIGINT,
  INOUT due BIGINT, INOUT held INT, INOUT held_weight BIGINT, IN held_lim INT, INOUT held_lims INT, INOUT waiting INT
) SQL SECURITY INVOKER
BEGIN
  DECLARE expired, gone, gone_held, gone_lims INT;
  DECLARE gone_weight BIGINT;
  SELECT COUNT(*) INTO expired FROM `holdfast_entry` e WHERE e.k = own_key AND e.expires_at <= now_us;
  SELECT COUNT(*), COUNT(e.held_since), IFNULL(SUM(IF(e.held_since IS NULL, 0, e.weight)), 0),
      COUNT(IF(e.lim = held_lim, e.held_since, NULL))
    INTO gone, gone_held, gone_weight, gone_lims
    FROM `holdfast_entry` e WHERE e.k = own_key AND e.expires_at <= now_us AND e.removed = 0;
  DELETE FROM `holdfast_entry` WHERE k = own_key AND expires_at <= now_us;
  IF ROW_COUNT() <> expired THEN
    --#include interrupted
  END IF;
  SELECT MIN(e.expires_at) INTO due FROM `holdfast_entry` e WHERE e.k = own_key;
  SET held = held - gone_held, held_weight = held_weight - gone_weight, held_lims = held_lims - gone_lims,
    waiting = waiting - (gone - gone_held);
END
//

-- Settle a crowd: what has expired goes, and then the waiters at the front hold, as far as the rule lets them. Expiries
-- stay as they are: a grant never changes one. Writes the sums.
CREATE PROCEDURE `holdfast_settle_line`(
  IN own_key VARBINARY(512), IN now_us BIGINT, IN engine_id BINARY(16),
  IN last_token BIGINT, INOUT due BIGINT, INOUT held INT, INOUT held_weight BIGINT,
  INOUT held_lim INT, INOUT held_lims INT, INOUT held_until BIGINT, INOUT waiting INT
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_id, its_engine_id BINARY(16);
  DECLARE its_token, its_expiry BIGINT;
  DECLARE its_weight, its_lim INT;
  DECLARE full BOOLEAN DEFAULT FALSE;
  -- All that has expired goes first: nothing is granted to an entry that has expired, too.
  IF due <= now_us OR held + waiting = 0 THEN
    CALL `holdfast_drop_expired`(own_key, now_us, due, held, held_weight, held_lim, held_lims, waiting);
  END IF;
  IF held = 0 THEN
    SET held_lim = 2147483647, held_lims = 0;
  ELSEIF held_lims = 0 THEN
    -- The last holder with the smallest limit has gone.
    SELECT e.lim, COUNT(*) INTO held_lim, held_lims FROM `holdfast_entry` e
      WHERE e.k = own_key AND e.token <= held_until AND e.removed = 0
      GROUP BY e.lim ORDER BY e.lim LIMIT 1;
    IF held_lims = 0 THEN
      --#include interrupted
    END IF;
  END IF;
  WHILE waiting > 0 AND held_weight < held_lim AND NOT full DO
    SET its_token = NULL;
    SELECT e.id, e.token, e.weight, e.lim, e.expires_at, e.client
      INTO its_id, its_token, its_weight, its_lim, its_expiry, its_engine_id
      FROM `holdfast_entry` e FORCE INDEX (PRIMARY)
      WHERE e.k = own_key AND e.token > held_until AND e.removed = 0 ORDER BY e.token LIMIT 1;
    IF its_token IS NULL THEN
      --#include interrupted
    END IF;
    IF held_weight + its_weight > LEAST(held_lim, its_lim) THEN
      SET full = TRUE;
    ELSE
      UPDATE `holdfast_entry` e SET e.held_since = now_us, e.news_at = IF(e.client = engine_id, NULL, now_us)
        WHERE e.k = own_key AND e.token = its_token;
      SET held_lims = IF(its_lim < held_lim, 1, held_lims + (its_lim = held_lim)), held_lim = LEAST(held_lim, its_lim),
        held_until = its_token;
      SET held = held + 1, held_weight = held_weight + its_weight, waiting = waiting - 1;
      CALL `holdfast_tell_engine`(own_key, its_id, its_engine_id, its_token, its_expiry - now_us, engine_id);
    END IF;
  END WHILE;
  UPDATE `holdfast_line` l
    SET l.due_at = IFNULL(due, 0), l.crowd = due IS NOT NULL,
      l.held = held, l.held_weight = held_weight, l.held_lim = held_lim, l.held_lims = held_lims,
      l.held_until = held_until, l.waiting = waiting
    WHERE l.k = own_key;
END
//

-- Where a waiter stands, with the number of entries ahead where it is known, and when its process is to look again
-- should it hear nothing (microseconds from now):
--     w:<ahead>:<us>        the first waiter in line: when the next entry can expire
--     q:<ahead>:<us>        behind another waiter: when the first waiter can expire, which then did not look
--     s:<ahead>:<us>        the same, right behind an entry of another user of the database, who may not wake this one
-- The first waiter renews at a third of its ttl. If `due` comes before about its next renewal, it is found out anew: so
-- the time does not come while all entries are renewed. `first_token` and `first_expiry` are those of the first waiter,
-- if they are known.
--
-- The entry right before it says both who is to wake it, as a rule, and whether it is the first waiter: then that entry
-- holds. So the usual waiter, the only one, is answered with one look into the table.
CREATE PROCEDURE `holdfast_wait_answer`(
  IN own_key VARBINARY(512), IN own_token BIGINT, IN own_ttl BIGINT, INOUT due BIGINT, IN held_until BIGINT,
  IN ahead VARCHAR(10) CHARACTER SET ascii, IN now_us BIGINT, IN engine_id BINARY(16),
  INOUT first_token BIGINT, INOUT first_expiry BIGINT, OUT answer VARCHAR(64) CHARACTER SET ascii
) SQL SECURITY INVOKER
BEGIN
  DECLARE its_token BIGINT;
  DECLARE its_engine_id BINARY(16);
  SELECT e.token, e.client INTO its_token, its_engine_id FROM `holdfast_entry` e FORCE INDEX (PRIMARY)
    WHERE e.k = own_key AND e.token < own_token AND e.removed = 0 ORDER BY e.token DESC LIMIT 1;
  IF its_token > held_until THEN
    IF first_token IS NULL THEN
      SELECT e.token, e.expires_at INTO first_token, first_expiry
        FROM `holdfast_entry` e FORCE INDEX (PRIMARY)
        WHERE e.k = own_key AND e.token > held_until AND e.removed = 0 ORDER BY e.token LIMIT 1;
      IF first_token IS NULL THEN
        --#include interrupted
      END IF;
    END IF;
    SET answer = CONCAT('q:', ahead, ':', first_expiry - now_us);
  ELSE
    IF due < now_us + own_ttl DIV 2 THEN
      SELECT MIN(e.expires_at) INTO due FROM `holdfast_entry` e WHERE e.k = own_key;
      UPDATE `holdfast_line` l SET l.due_at = due WHERE l.k = own_key;
    END IF;
    SET answer = CONCAT('w:', ahead, ':', due - now_us);
  END IF;
  -- An engine that listens has a named lock with the code of its user (see listen.ts).
  IF its_engine_id <> engine_id AND IS_USED_LOCK(CONCAT('holdfast.', LOWER(HEX(its_engine_id)), '.',
      --#include user_code
      )) IS NULL AND IS_USED_LOCK(CONCAT('holdfast.', LOWER(HEX(its_engine_id)))) IS NOT NULL THEN
    SET answer = CONCAT('s', SUBSTRING(answer, 2));
  END IF;
END
//

-- Renew an entry of a crowd; with `own_outlives`, it is to stand there without its process from now on. Say where it
-- stands: its token if it holds, as above if it waits, and if it is gone `e` (evicted) or `u` (unknown).
CREATE PROCEDURE `holdfast_renew_entry`(
  IN own_key VARBINARY(512), IN own_id BINARY(16), IN own_ttl BIGINT, IN own_outlives BOOLEAN,
  IN now_us BIGINT, IN engine_id BINARY(16), INOUT due BIGINT, IN held_until BIGINT,
  INOUT first_token BIGINT, INOUT first_expiry BIGINT, OUT answer VARCHAR(64) CHARACTER SET ascii
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_token, own_held_since BIGINT;
  DECLARE own_evicted BOOLEAN;
  SELECT e.token, e.held_since, e.evicted INTO own_token, own_held_since, own_evicted
    FROM `holdfast_entry` e WHERE e.k = own_key AND e.id = own_id;
  IF own_token IS NULL THEN
    SET answer = 'u';
  ELSEIF own_evicted THEN
    SET answer = 'e';
  ELSE
    UPDATE `holdfast_entry` e
      SET e.expires_at = IF(e.outlives > own_outlives, GREATEST(e.expires_at, now_us + own_ttl), now_us + own_ttl),
        e.outlives = e.outlives OR own_outlives, e.ttl = own_ttl, e.news_at = NULL
      WHERE e.k = own_key AND e.token = own_token;
    IF due > now_us + own_ttl THEN
      SET due = now_us + own_ttl;
      UPDATE `holdfast_line` l SET l.due_at = due WHERE l.k = own_key;
    END IF;
    IF own_held_since IS NOT NULL THEN
      SET answer = own_token;
    ELSE
      SET first_token = IF(first_token = own_token, NULL, first_token);
      CALL `holdfast_wait_answer`(
        own_key, own_token, own_ttl, due, held_until, '', now_us, engine_id, first_token, first_expiry, answer);
    END IF;
  END IF;
END
//
