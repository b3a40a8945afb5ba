-- Leave lines: release what is held, give up a place. The next ones hold before this script ends, and are told.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua
-- Answer               for each place one character: 1 if it was in line, else 0. As a number for one place that was, which costs less to read
--
-- The usual batch finds that every place holds alone. Then it costs one MGET and one DEL for all of them.

local call = redis.call

-- Let the first in line hold, and nobody else: if it wants all there is, is alive, and nobody watches. Else nothing is
-- changed. Somebody waits for this script to end: so there is not one call more in it than needed, nor a number that is
-- made text and back.
local function hand_over(K)
  local entries, queue, expiries = KEYS[2], KEYS[3], KEYS[4]
  if not entries then
    local line = ':{' .. K .. '}'
    entries, queue, expiries = 'hf1:entries' .. line, 'hf1:queue' .. line, 'hf1:expiries' .. line
  end
  local first = call('ZPOPMIN', queue)
  local id = first[1]
  if not id then return false end
  local value, watchers = unpack(call('HMGET', entries, id, '!'))
  local expiry, record, token, weight, limit, client = string.match(value or '', '^(%d+) ((%d+) a (%d+) (%d+) %d+ (%S*) .*)$')
  local time = call('TIME')
  local left = (expiry or 0) - time[1] * 1000 - time[2] / 1000
  if weight ~= limit or watchers or left < 1 then
    call('ZADD', queue, first[2], id)
    call('PEXPIRE', queue, call('PTTL', entries))
    return false
  end
  call('HDEL', entries, id)
  call('ZREM', expiries, id)
  call('SET', K, 'hf1+' .. id .. ':' .. record, 'PXAT', expiry)
  call('PUBLISH', 'hf1:' .. client, id .. ' ' .. token .. ' ' .. left - left % 1 .. ' ' .. K)
  return true
end

if ARGV[3] == '1' then
  -- One place, by itself: the least that can be done for it. Nothing below is needed.
  local K, id = ARGV[1] == '' and KEYS[1] or ARGV[1], ARGV[2]
  local value = redis.pcall('GET', K)
  if type(value) == 'string' and string.sub(value, 5, #id + 5) == id .. ':' then
    local form = string.sub(value, 1, 4)
    if form == 'hf1:' then
      call('DEL', K)
      return 1
    end
    if form == 'hf1+' and hand_over(K) then return 1 end
  end
end

--#include keys
local values = call('MGET', unpack(Ks))

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
if #free > 0 then call('DEL', unpack(free)) end
if #slow == 0 then return string.rep('1', count) end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line

local function leave(line, id)
  if line.sole == id then
    unhold_alone(line)
  else
    local value = line.exists and find(line, id)
    if not value or parse_value(value).flag == 'x' then return '0' end
    drop(line, id)
  end
  settle(line)
  return '1'
end

for _, i in ipairs(slow) do codes[i] = leave(open(i), ids[i]) end
finish()
return table.concat(codes)
