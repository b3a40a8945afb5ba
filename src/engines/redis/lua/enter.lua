-- Enter lines, in the order of the claims.
--
-- KEYS  1              the counter that tokens come from
--       2..            for each claim its K; or K, entries, queue and expiries where every key has to be declared (Cluster)
-- ARGV  1              '' if all claims are of one class; else how many classes there are, and then for each claim which is its own, each as a
--                      character: '!' for 1, '"' for 2, and so on
--       2..            for each class: its ttl (ms); 'w' if it waits, 't' if it only tries, and the record from the flag on
--       ..             for each claim its id
-- Answer               {first token, codes, extras...}
--                      codes has one letter for each claim: h holds, new, with the first token plus its index; the others as in place.lua
--
-- The usual batch finds every line empty. Then it costs one EXISTS for all of them, and one SET for each. Arguments are few because each costs as much
-- as a small command.
local class_of = ARGV[1]
local first_id = class_of == '' and 3 or 1 + 2 * (string.byte(class_of, 1) - 32)
local count = #ARGV - first_id
local stride = (#KEYS - 1) / count

-- Tokens never go back: not when the counter is lost (then the clock is ahead of it), nor when the clock is set back (then the counter is ahead).
local time = redis.call('TIME')
local base = time[1] * 1000000 + time[2]
local first_token = string.format('%.0f', base)
local last_token = count == 1 and first_token or string.format('%.0f', base + count - 1)
local previous = redis.call('SET', KEYS[1], last_token, 'GET')
local now = math.floor(base / 1000)
if previous and tonumber(previous) >= base then
  base = tonumber(previous) + 1
  first_token = string.format('%.0f', base)
  redis.call('SET', KEYS[1], string.format('%.0f', base + count - 1))
end

local entries, lined = {}, false
for i = 1, count do
  entries[i] = stride == 1 and 'hf1:entries:{' .. KEYS[i + 1] .. '}' or KEYS[i * 4 - 1]
end
lined = redis.call('EXISTS', unpack(entries)) > 0

local slow, ttl, record = {}, ARGV[2], string.sub(ARGV[3], 2)
for i = 1, count do
  if class_of ~= '' then
    local class = 2 * (string.byte(class_of, i + 1) - 32)
    ttl, record = ARGV[class], string.sub(ARGV[class + 1], 2)
  end
  local token = i == 1 and first_token or string.format('%.0f', base + i - 1)
  local taken = (not lined or redis.call('EXISTS', entries[i]) == 0)
    and redis.call('SET', KEYS[stride * (i - 1) + 2], 'hf1:' .. ARGV[first_id + i] .. ':' .. token .. record, 'NX', 'PX', ttl)
  if not taken then slow[#slow + 1] = i end
end
if #slow == 0 then return {first_token, string.rep('h', count)} end

local codes, firsts, seconds = {}, {}, {}
for i = 1, count do codes[i] = 'h' end
--#include line
--#include place

local function enter(i, line, id, class)
  local ttl, waits, record = tonumber(ARGV[class]), string.sub(ARGV[class + 1], 1, 1) == 'w', string.sub(ARGV[class + 1], 2)
  local weight, limit = string.match(record, '^ %a (%d+) (%d+)')
  weight, limit = tonumber(weight), tonumber(limit)
  if line.sole == id or (line.exists and call('HEXISTS', line.entries, id) == 1) then return renew(line, i, id, ttl) end
  if line.fault then return answer(i, 'f', line.fault, line.detail) end

  local size = line.count + line.waiting + (line.stranger and 1 or 0)
  local holds = line.waiting == 0 and admits(line, weight, limit)
  if not holds and not waits then return answer(i, 'b', size) end
  if size >= 10000 then return answer(i, 'x') end

  spread(line)
  local token = string.format('%.0f', base + i - 1)
  call('HSET', line.entries, id, token .. record)
  call('ZADD', line.expiries, now + ttl, id)
  line.longest = math.max(line.longest, ttl)
  if holds then
    hold(line, weight, limit)
    line.changed, line.reach = true, math.max(line.reach, now + ttl)
    call('HSET', line.entries, '@' .. id, now)
  else
    line.queued = line.queued or line.waiting == 0
    call('ZADD', line.queue, token, id)
    line.waiting = line.waiting + 1
    answer_waiting(line, i, id, size)
  end
end

for _, i in ipairs(slow) do
  local class = class_of == '' and 2 or 2 * (string.byte(class_of, i + 1) - 32)
  enter(i, open_at(stride * (i - 1) + 2, stride == 1), ARGV[first_id + i], class)
end
finish()
return answers(first_token, table.concat(codes))
