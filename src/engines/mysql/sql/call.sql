-- What the calls have in common: how they begin, how they wake the processes of waiters that now hold, and how a
-- process listens.

-- Begin a call. Whatever isolation level and access mode this connection has: a call that waited for a lock has to read
-- what is there now. And one row that another transaction has locked for good must not hold up the rest for the usual
-- fifty seconds.
CREATE PROCEDURE `holdfast_begin_call`() SQL SECURITY INVOKER
BEGIN
  --#include begin
  SET @holdfast_news = '', @holdfast_wakes = '';
END
//

-- Whether another transaction has locked a line; if not, this one has locked it now. For a batch that has waited for
-- its lines once already, in vain. (Two statements: what is asked inside of SET or IF waits for locks.)
CREATE PROCEDURE `holdfast_try_line`(IN own_key VARBINARY(512), OUT is_locked BOOLEAN) SQL SECURITY INVOKER
BEGIN
  DECLARE is_had, is_there BOOLEAN DEFAULT FALSE;
  SELECT TRUE INTO is_had FROM `holdfast_line` WHERE k = own_key FOR UPDATE SKIP LOCKED;
  SELECT TRUE INTO is_there FROM `holdfast_line` WHERE k = own_key;
  SET is_locked = is_there AND NOT is_had;
END
//

-- Wake engine objects (`engine_ids`), each named by the 32 hexadecimal digits of its id. An engine that listens has a
-- connection with a named lock, and the server says which connection has that lock. So no other query is ever killed,
-- however old the id that is stored. An engine whose connection is not there, or that this user may not wake, finds out
-- by itself: its waiters renew.
--
-- A connection that sleeps is woken with care: no two at the same time, and none again before it is up. In MariaDB all
-- sleeping connections share one mutex. A connection that wakes up has this mutex, and asks for one that its waker has.
-- The waker asks for the shared mutex; if that is not free, it tries again for two seconds, and no connection is woken
-- meanwhile. (THD::abort_current_cond_wait, Interruptible_wait::wait.)
CREATE PROCEDURE `holdfast_wake_engines`(IN engine_ids LONGTEXT CHARACTER SET ascii) SQL SECURITY INVOKER
BEGIN
  DECLARE thread, its_query BIGINT;
  DECLARE looks INT;
  DECLARE is_asleep BOOLEAN;
  -- Also for servers that do not number the queries of their connections, as MySQL does not.
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
  WHILE engine_ids <> '' DO
    SET thread = IS_USED_LOCK(CONCAT('holdfast.', LOWER(LEFT(engine_ids, 32))));
    IF thread = IS_USED_LOCK('holdfast.watch') THEN
      SET is_asleep = FALSE, looks = 0;
      DO GET_LOCK('holdfast.wake', 0.1);
      SELECT TRUE, p.query_id INTO is_asleep, its_query FROM information_schema.processlist p
        WHERE p.id = thread AND p.state = 'User sleep';
      KILL QUERY thread;
      WHILE is_asleep AND looks < 100 DO
        SET is_asleep = FALSE, looks = looks + 1;
        SELECT TRUE INTO is_asleep FROM information_schema.processlist p WHERE p.id = thread AND p.query_id = its_query;
      END WHILE;
      DO RELEASE_LOCK('holdfast.wake');
    ELSEIF thread IS NOT NULL THEN
      KILL QUERY thread;
    END IF;
    SET engine_ids = SUBSTRING(engine_ids, 33);
  END WHILE;
END
//

-- Wait until there is news for this engine, or for so many seconds. Answers rows of key, id, token, when the entry
-- expires, the name of the news, when it was made, and what time it is.
--
-- Of all connections that listen, one sleeps: the watch. The others wait for its named lock, and so do not sleep, but
-- can be woken all the same. When the watch ends, the next one gets the lock and is the watch.
--
-- The name of the news is the id of the entry if it holds, with a minus before it if it was evicted; and if it waits,
-- and is to look again, with a tilde before it and its time behind it, since that can happen more than once.
--
-- News stays on its entry when it was told. Which news the engine has heard, it says itself: `newest_us` is the time
-- of the newest, and `told` has the names of that and of all news less than `margin_us` older. What is older still
-- counts as told. But if the clock was set back since, all new news is older than the newest: then the clock counts
-- instead of `newest_us`.
CREATE PROCEDURE `holdfast_listen`(
  IN engine_id BINARY(16), IN newest_us BIGINT, IN margin_us BIGINT, IN told LONGTEXT CHARACTER SET ascii,
  IN seconds INT
) SQL SECURITY INVOKER
BEGIN
  DECLARE is_there BOOLEAN;
  -- The smallest of one row: who wakes this connection may hit the look, and a SELECT with a LIMIT may then be skipped
  -- without an error. The connection would sleep over its news.
  SELECT MIN(first.token) IS NOT NULL INTO is_there FROM (
    SELECT token FROM `holdfast_entry`
      WHERE client = engine_id
        AND news_at > LEAST(newest_us, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) - margin_us
        AND NOT FIND_IN_SET(
          --#include news_name
          , told) LIMIT 1) first;
  IF NOT is_there THEN
    IF GET_LOCK('holdfast.watch', seconds) THEN
      DO SLEEP(seconds);
    END IF;
  END IF;
  SELECT LOWER(HEX(k)), LOWER(HEX(id)), CAST(token AS CHAR), CAST(expires_at AS CHAR),
      --#include news_name
      , CAST(news_at AS CHAR), CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR)
    FROM `holdfast_entry`
    WHERE client = engine_id
      AND news_at > LEAST(newest_us, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) - margin_us
      AND NOT FIND_IN_SET(
        --#include news_name
        , told);
END
//
