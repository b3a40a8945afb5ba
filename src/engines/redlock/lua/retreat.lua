-- Take back what an attempt has taken, and nothing that a later one has. The first in line is told: it may have been
-- waiting for this one. Whoever takes back something and stays in line is the first itself, and looks again by itself.
--
-- KEYS                 none
-- ARGV  1              the client
--       ..             for each: K, id, attempt, ttl (ms) to stand in line or '' not to, holder
-- Answer               for each one character: 1 if it was there, else 0
--#include common
local answers = {}
for at = 2, #ARGV, 5 do
  local K, id, up_to, ttl, holder = unpack(ARGV, at, at + 4)
  local value = redis.pcall('GET', K)
  local number, attempt, _, _, rest = mine(type(value) == 'string' and value, id)
  local was = number and tonumber(attempt) <= tonumber(up_to)
  if was then call('DEL', K) end
  if ttl ~= '' and not (number and not was) and not call('ZSCORE', queue_of(K), id) then
    local client, name = string.match(rest or ARGV[1] .. ' ' .. holder, '^(%S*) (.*)$')
    register(K, id, ttl, client, name, true)
  end
  if was then hint(K, id) end
  answers[#answers + 1] = was and '1' or '0'
end
return table.concat(answers)
