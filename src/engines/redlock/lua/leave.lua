-- Give keys back, and leave lines. The first waiter is told.
--
-- KEYS                 none
-- ARGV  1              the key of each place, separated by NUL
--       2              the id of each, separated by spaces
--       3              how many there are
-- Answer               for each one character: 1 if the entry was there, else 0
if ARGV[3] == '1' then
  -- The least that can be done for one key without waiters. Nothing below is needed.
  local key, id = string.sub(ARGV[1], 1, -2), string.sub(ARGV[2], 1, -2)
  if redis.call('EXISTS', 'hf1:redlock:queue:{' .. key .. '}') == 0 then
    local value = redis.pcall('GET', key)
    if type(value) == 'string' and string.sub(value, 1, #id + 6) == 'hfr1:' .. id .. ':' then
      redis.call('DEL', key)
      return '1'
    end
    return '0'
  end
end

--#include common
local keys, queues, count = {}, {}, 0
for key in string.gmatch(ARGV[1], '[^%z]+') do
  count = count + 1
  keys[count], queues[count] = key, queue_of(key)
end
local values = call('MGET', unpack(keys))
local any_waiters = call('EXISTS', unpack(queues)) > 0
local answers, i = {}, 0
for id in string.gmatch(ARGV[2], '%S+') do
  i = i + 1
  local key = keys[i]
  local was = parse_own(values[i], id) and call('DEL', key) == 1
  if any_waiters then
    -- Only the first waiter looks when the holder expires: the next one has to know that it is the first now.
    local was_first = first_waiter(key) == id
    was = leave_line(key, id) or was
    if was_first or call('EXISTS', key) == 0 then signal_first(key) end
  end
  answers[i] = was and '1' or '0'
end
return table.concat(answers)
