-- Leave lines: release what is held, give up a place. The next ones hold before this script ends, and are told.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua
-- Answer               for each place one character: 1 if it was in line, else 0. As a number for one place that was,
--                      which costs less to read
--
-- The usual batch finds that every place holds alone. Then it costs one MGET and one DEL for all of them.

local call = redis.call

-- Let the first waiter hold alone, if it wants all there is and is alive, and if the line has no watchers. Else change
-- nothing. A waiter waits for this script to end: so there is not one call more in it than needed, nor a number that is
-- made text and back.
local function hand_off(server_key)
  local entries, queue, expiries = KEYS[2], KEYS[3], KEYS[4]
  if not entries then
    local suffix = ':{' .. server_key .. '}'
    entries, queue, expiries = 'hf1:entries' .. suffix, 'hf1:queue' .. suffix, 'hf1:expiries' .. suffix
  end
  local first = call('ZPOPMIN', queue)
  local id = first[1]
  if not id then return false end
  local value, watchers = unpack(call('HMGET', entries, id, '!'))
  local expiry, record, token, weight, limit, engine_id, holder =
    string.match(value or '', '^(%d+) ((%d+) a (%d+) (%d+) %d+ (%S*))( .*)$')
  local time = call('TIME')
  local left = (expiry or 0) - time[1] * 1000 - time[2] / 1000
  if weight ~= limit or watchers or left < 1 then
    call('ZADD', queue, first[2], id)
    call('PEXPIRE', queue, call('PTTL', entries))
    return false
  end
  call('HDEL', entries, id)
  call('ZREM', expiries, id)
  local since = string.format('@%d%03d', time[1], time[2] / 1000)
  call('SET', server_key, 'hf1+' .. id .. ':' .. record .. since .. holder, 'PXAT', expiry)
  call('PUBLISH', 'hf1:' .. engine_id, id .. ' ' .. token .. ' ' .. left - left % 1 .. ' ' .. server_key)
  return true
end

if ARGV[3] == '1' then
  -- One place, by itself: the least that can be done for it. Nothing below is needed.
  local server_key, id = ARGV[1] == '' and KEYS[1] or ARGV[1], ARGV[2]
  local value = redis.pcall('GET', server_key)
  if type(value) == 'string' and string.sub(value, 5, #id + 5) == id .. ':' then
    local form = string.sub(value, 1, 4)
    if form == 'hf1:' then
      call('DEL', server_key)
      return 1
    end
    if form == 'hf1+' and hand_off(server_key) then return 1 end
  end
end

--#include keys
local values = call('MGET', unpack(server_keys))

local slow, codes, free, seen = {}, {}, {}, {}
for i = 1, count do
  local id, server_key = ids[i], server_keys[i]
  if values[i] and not seen[server_key] and string.sub(values[i], 1, #id + 5) == 'hf1:' .. id .. ':' then
    free[#free + 1], codes[i] = server_key, '1'
  else
    slow[#slow + 1] = i
  end
  seen[server_key] = true
end
if #free > 0 then call('DEL', unpack(free)) end
if #slow == 0 then return string.rep('1', count) end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line
--#include departure

for _, i in ipairs(slow) do codes[i] = leave(open(i), ids[i]) end
finish()
return table.concat(codes)
