-- Raise the numbers of keys that an entry has: see quorum-decision.ts.
--
-- KEYS                 none
-- ARGV                 for each: key, id, the number to raise it to, the group that says which counter the key has
-- Answer               for each the number that the key has then, or, if the counter is above that already, what has
--                      been counted to; 0 if the entry does not have the key. Separated by spaces
--
-- A server that has forgotten what it counted to does not believe the number it is asked for: others may have counted
-- further meanwhile.
--#include common
local answers = {}
for at = 1, #ARGV, 4 do
  local key, id, to, group = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local value = redis.pcall('GET', key)
  local number, attempt, flag, ttl, rest = parse_own(type(value) == 'string' and value, id)
  local count = number and tonumber(counted_to(group))
  if not number then
    answers[#answers + 1] = '0'
  elseif count > tonumber(to) then
    answers[#answers + 1] = digits(count)
  else
    call('HSET', 'hf1:counters', group, to)
    call('SET', key, value_of(id, to, attempt, flag, ttl, rest), 'KEEPTTL')
    answers[#answers + 1] = to
  end
end
return table.concat(answers, ' ')
