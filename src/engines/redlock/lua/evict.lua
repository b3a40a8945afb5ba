-- Remove the key of a holder, named by the id of its entry.
--
-- KEYS                 none
-- ARGV  1              the key
--       2              the id
--       3              expire: refuse its renewals. now: free the key at once
-- Answer               1 if the entry had the key here, else 0
--
-- Why it went is remembered until it would have expired, and its process is told to ask. What is remembered of other
-- entries for longer than that is dropped on the way.
--#include common
local key, id, how = ARGV[1], ARGV[2], ARGV[3]
local value = redis.pcall('GET', key)
local number, attempt, _, ttl, rest = parse_own(type(value) == 'string' and value, id)
if not number then return 0 end
if how == 'expire' then
  call('SET', key, value_of(id, number, attempt, 'e', ttl, rest), 'KEEPTTL')
else
  local left = math.max(call('PTTL', key), 1)
  call('DEL', key)
  local known = call('HGETALL', 'hf1:redlock:evicted')
  for at = 1, #known, 2 do
    if tonumber(known[at + 1]) <= now() then call('HDEL', 'hf1:redlock:evicted', known[at]) end
  end
  call('HSET', 'hf1:redlock:evicted', id, digits(now() + left))
  if call('PTTL', 'hf1:redlock:evicted') < left then call('PEXPIRE', 'hf1:redlock:evicted', left) end
  signal_first(key)
end
call('PUBLISH', 'hf1:' .. string.match(rest, '^%S*'), id .. ' ' .. key)
return 1
