-- Evict the entry with this token, and tell its engine. A holder's renewals are refused, so that it goes when it
-- leaves or expires. A waiter, and with `at_once` a holder, too, goes now, and is remembered until it would have
-- expired. Answers one row: `1` if there was such an entry, else `0`; and the news for `engine_id`.
CREATE PROCEDURE `holdfast_evict`(
  IN own_key VARBINARY(512), IN own_token BIGINT, IN at_once BOOLEAN, IN engine_id BINARY(16)
) SQL SECURITY INVOKER
BEGIN
  DECLARE own_id, own_engine_id BINARY(16);
  DECLARE own_weight, own_lim INT;
  DECLARE own_held_since BIGINT;
  --#include declare_line
  --#include declare_rollback

  CALL `holdfast_begin_call`();
  --#include open_line
  IF its_id IS NOT NULL AND last_token = own_token THEN
    CALL `holdfast_make_crowd`(own_key);
  END IF;
  SELECT e.id, e.client, e.weight, e.lim, e.held_since INTO own_id, own_engine_id, own_weight, own_lim, own_held_since
    FROM `holdfast_entry` e WHERE e.k = own_key AND e.token = own_token AND e.removed = 0;
  IF own_held_since IS NOT NULL AND NOT at_once THEN
    UPDATE `holdfast_entry` e SET e.evicted = 1, e.news_at = IF(e.client = engine_id, NULL, now_us)
      WHERE e.k = own_key AND e.token = own_token;
    CALL `holdfast_tell_engine`(own_key, own_id, own_engine_id, NULL, 0, engine_id);
  ELSEIF own_id IS NOT NULL THEN
    UPDATE `holdfast_entry` e SET e.removed = 1, e.evicted = 1, e.news_at = IF(e.client = engine_id, NULL, now_us)
      WHERE e.k = own_key AND e.token = own_token;
    CALL `holdfast_tell_engine`(own_key, own_id, own_engine_id, NULL, 0, engine_id);
    --#include settle_departure
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  --#include finish
  SELECT IF(own_id IS NULL, '0', '1'), @holdfast_news;
END
//
