-- Raise the numbers of keys that are ours: see verdict.ts.
--
-- KEYS                 none
-- ARGV                 for each: K, id, the number to raise it to, the group that says which counter the key has
-- Answer               for each the number that it has then, or, if the counter is above that already, what has been counted to; 0 if the key is not ours.
--                      Separated by spaces
--
-- A server that has forgotten what it counted to does not take the word of one that asks: others may have counted
-- further meanwhile.
--#include common
local answers = {}
for at = 1, #ARGV, 4 do
  local K, id, to, group = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local value = redis.pcall('GET', K)
  local number, attempt, flag, ttl, rest = mine(type(value) == 'string' and value, id)
  local count = number and tonumber(counted_to(group))
  if not number then
    answers[#answers + 1] = '0'
  elseif count > tonumber(to) then
    answers[#answers + 1] = digits(count)
  else
    call('HSET', 'hf1:counters', group, to)
    call('SET', K, value_of(id, to, attempt, flag, ttl, rest), 'KEEPTTL')
    answers[#answers + 1] = to
  end
end
return table.concat(answers, ' ')
