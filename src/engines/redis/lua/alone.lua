-- Renew or leave an entry that is alone in its line, knowing only K.
--
-- KEYS  1              K
-- ARGV  1              its id
--       2              its ttl (ms); '' to leave
-- Answer               its token, if it holds alone and is not evicted; '' if that cannot be said without the other keys of the line
--
-- While Cluster moves a slot, scripts with several keys are refused until all of them are on one server, and keys that do not exist are on none. A script with
-- one key is served all the time: so whoever holds a lock that nobody else wants is not hurt by the move, however long it takes.
local value = redis.call('GET', KEYS[1])
local own = 'hf1:' .. ARGV[1] .. ':'
if not value or string.sub(value, 1, #own) ~= own then return '' end
local token, ttl = string.match(value, '^(%d+) a %d+ %d+ (%d+) ', #own + 1)
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
  return string.match(value, '^%d+', #own + 1)
end
if ttl ~= ARGV[2] then return '' end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return token
