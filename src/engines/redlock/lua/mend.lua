-- Have what a majority has granted on this server too.
--
-- KEYS                 none
-- ARGV  1              the client
--       ..             for each: K, id, attempt, group, token, the number that it has here or '' if it is missing, not after (ms), ttl (ms), flag, holder
-- Answer               OK
--
-- A key that is missing is set, unless the clock of this server says that the message is late: it could come after the
-- release. The counter is no lower than the token then; where it is missing, that alone would not do: others that share
-- it may have been given higher numbers here.
--#include common
for at = 2, #ARGV, 10 do
  local K, id, attempt, group, token, seen, not_after, ttl, flag, holder = unpack(ARGV, at, at + 9)
  local done
  if seen == '' then
    done = now() <= tonumber(not_after) and call('SET', K, value_of(id, token, attempt, flag, ttl, ARGV[1] .. ' ' .. holder), 'NX', 'PX', ttl)
    if done then unregister(K, id) end
  else
    local value = redis.pcall('GET', K)
    local number, since, is, had, rest = mine(type(value) == 'string' and value, id)
    done = number == seen
    if done then call('SET', K, value_of(id, token, since, is, had, rest), 'KEEPTTL') end
  end
  if done and tonumber(counted_to(group)) < tonumber(token) then call('HSET', 'hf1:counters', group, token) end
end
return redis.status_reply('OK')
