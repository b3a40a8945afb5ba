-- Remove the key of somebody, named by its id.
--
-- KEYS                 none
-- ARGV  1              K
--       2              its id
--       3              expire: refuse its renewals. now: free the key at once
-- Answer               1 if it had the key here, else 0
--
-- Why it went is remembered until it would have expired, and its process is told to look. What is remembered of others
-- for longer than that is dropped on the way.
--#include common
local K, id, how = ARGV[1], ARGV[2], ARGV[3]
local value = redis.pcall('GET', K)
local number, attempt, _, ttl, rest = mine(type(value) == 'string' and value, id)
if not number then return 0 end
if how == 'expire' then
  call('SET', K, value_of(id, number, attempt, 'e', ttl, rest), 'KEEPTTL')
else
  local left = math.max(call('PTTL', K), 1)
  call('DEL', K)
  local known = call('HGETALL', 'hf1:redlock:evicted')
  for at = 1, #known, 2 do
    if tonumber(known[at + 1]) <= now() then call('HDEL', 'hf1:redlock:evicted', known[at]) end
  end
  call('HSET', 'hf1:redlock:evicted', id, digits(now() + left))
  if call('PTTL', 'hf1:redlock:evicted') < left then call('PEXPIRE', 'hf1:redlock:evicted', left) end
  hint(K)
end
call('PUBLISH', 'hf1:' .. string.match(rest, '^%S*'), id .. ' ' .. K)
return 1
