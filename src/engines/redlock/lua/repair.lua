-- Store on this server, too, what a majority has granted.
--
-- KEYS                 none
-- ARGV  1              the engine id
--       ..             for each: key, id, attempt, group, token, the number that the entry has here or '' if the server
--                      has nothing, not after (ms), ttl (ms), flag, holder
-- Answer               OK
--
-- Where the server has nothing, the key is set, unless the clock of this server says that the message is late: it could
-- come after the release. Then the counter is no lower than the token. Where the counter is missing, the token alone
-- would not do: other keys of the same group may have been given higher numbers here.
--#include common
for at = 2, #ARGV, 10 do
  local key, id, attempt, group, token, current, not_after, ttl, flag, holder = unpack(ARGV, at, at + 9)
  local done
  if current == '' then
    local granted = value_of(id, token, attempt, flag, ttl, ARGV[1] .. ' ' .. holder)
    done = now() <= tonumber(not_after) and call('SET', key, granted, 'NX', 'PX', ttl)
    if done then leave_line(key, id) end
  else
    local value = redis.pcall('GET', key)
    local number, own_attempt, own_flag, own_ttl, rest = parse_own(type(value) == 'string' and value, id)
    done = number == current
    if done then call('SET', key, value_of(id, token, own_attempt, own_flag, own_ttl, rest), 'KEEPTTL') end
  end
  if done and tonumber(counted_to(group)) < tonumber(token) then call('HSET', 'hf1:counters', group, token) end
end
return redis.status_reply('OK')
