-- Renew or leave an entry that holds alone, knowing only the server key.
--
-- KEYS  1              the server key
-- ARGV  1              its id
--       2              its ttl (ms); '' to leave
-- Answer               its token, if that was done; '' if it cannot be done, or not be known, without the other keys
--                      of the line
--
-- While Cluster moves a slot, scripts with several keys are refused until all of them are on one server, and keys that
-- do not exist are on none. A script with one key is served all the time. So an entry that holds alone is not hurt by
-- the move, however long it takes. Only if others wait does the move have to be over before the holder can leave.
local value = redis.call('GET', KEYS[1])
local form, id, token, flag, ttl = string.match(value or '', '^hf1([:+])([^:]*):(%d+) (%a) %d+ %d+ (%d+) ')
if id ~= ARGV[1] then return '' end
if ARGV[2] == '' then
  if form == '+' then return '' end
  redis.call('DEL', KEYS[1])
  return token
end
if flag ~= 'a' or ttl ~= ARGV[2] then return '' end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return token
