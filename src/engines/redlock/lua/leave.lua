-- Give keys back, and leave lines. The first in line is told.
--
-- KEYS                 none
-- ARGV  1              the K of each place, separated by NUL
--       2              the id of each, separated by spaces
--       3              how many there are
-- Answer               for each one character: 1 if it was there, else 0
if ARGV[3] == '1' then
  -- The least that can be done for one key that nobody waits for. Nothing below is needed.
  local K, id = string.sub(ARGV[1], 1, -2), string.sub(ARGV[2], 1, -2)
  if redis.call('EXISTS', 'hf1:redlock:queue:{' .. K .. '}') == 0 then
    local value = redis.pcall('GET', K)
    if type(value) == 'string' and string.sub(value, 1, #id + 6) == 'hfr1:' .. id .. ':' then
      redis.call('DEL', K)
      return '1'
    end
    return '0'
  end
end

--#include common
local Ks, queues, count = {}, {}, 0
for K in string.gmatch(ARGV[1], '[^%z]+') do
  count = count + 1
  Ks[count], queues[count] = K, queue_of(K)
end
local values = call('MGET', unpack(Ks))
local lined = call('EXISTS', unpack(queues)) > 0
local answers, i = {}, 0
for id in string.gmatch(ARGV[2], '%S+') do
  i = i + 1
  local K = Ks[i]
  local was = mine(values[i], id) and call('DEL', K) == 1
  if lined then
    was = unregister(K, id) or was
    if call('EXISTS', K) == 0 then hint(K) end
  end
  answers[i] = was and '1' or '0'
end
return table.concat(answers)
