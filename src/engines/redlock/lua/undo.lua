-- Undo attempts: give back what an attempt has taken, and nothing that a later one has. The first waiter is told: it
-- may have been waiting for this entry. An entry that is put back in line is the first waiter itself, and asks again by
-- itself.
--
-- KEYS                 none
-- ARGV  1              the engine id
--       ..             for each: key, id, attempt, ttl (ms) to stand in line or '' not to, holder
-- Answer               for each one character: 1 if the attempt had taken the key, else 0
--#include common
local answers = {}
for at = 2, #ARGV, 5 do
  local key, id, up_to, ttl, holder = unpack(ARGV, at, at + 4)
  local value = redis.pcall('GET', key)
  local number, attempt, _, _, rest = parse_own(type(value) == 'string' and value, id)
  local was = number and tonumber(attempt) <= tonumber(up_to)
  if was then call('DEL', key) end
  if ttl ~= '' and not (number and not was) and not call('ZSCORE', queue_of(key), id) then
    local own_engine_id, own_holder = string.match(rest or ARGV[1] .. ' ' .. holder, '^(%S*) (.*)$')
    stand_in_line(key, id, ttl, own_engine_id, own_holder, true)
  end
  if was then signal_first(key, id) end
  answers[#answers + 1] = was and '1' or '0'
end
return table.concat(answers)
