-- Leave lines: release what is held, give up a place. The next ones hold before this script ends, and are told.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua
-- Answer               for each place one character: 1 if it was in line, else 0
--
-- The usual batch finds that every place holds alone. Then it costs one MGET and one DEL for all of them.
if ARGV[3] == '1' then
  -- The least that can be done for one place: nothing below is needed.
  local K, own = ARGV[1] == '' and KEYS[1] or ARGV[1], 'hf1:' .. ARGV[2] .. ':'
  local value = redis.call('MGET', K)[1]
  if value and string.sub(value, 1, #own) == own then
    redis.call('DEL', K)
    return '1'
  end
end

--#include keys
local values = redis.call('MGET', unpack(Ks))

local slow, codes, free, seen = {}, {}, {}, {}
for i = 1, count do
  local id, K = ids[i], Ks[i]
  if values[i] and not seen[K] and string.sub(values[i], 1, #id + 5) == 'hf1:' .. id .. ':' then
    free[#free + 1], codes[i] = K, '1'
  else
    slow[#slow + 1] = i
  end
  seen[K] = true
end
if #free > 0 then redis.call('DEL', unpack(free)) end
if #slow == 0 then return string.rep('1', count) end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include line

local function leave(line, id)
  if line.sole == id then
    -- It was not met above only because its key came twice.
    call('DEL', line.K)
    lines[line.K] = nil
    return '1'
  end
  local record = line.exists and find(line, id)
  if not record or parse(record).flag == 'x' then return '0' end
  drop(line, id)
  settle(line)
  return '1'
end

for _, i in ipairs(slow) do codes[i] = leave(open(i), ids[i]) end
finish()
return table.concat(codes)
