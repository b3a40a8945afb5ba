-- Enter lines, in the order of the claims.
--
-- KEYS  1              the counter that tokens come from
--       2..            for each claim its K; or K, entries, queue and expiries where every key has to be declared (Cluster)
-- ARGV  1              only if claims are of several classes: ':', how many classes there are, and for each claim which is its own; both as characters,
--                      '!' for 1, '"' for 2, and so on
--       ..             for each class: its ttl (ms); 'w' if it waits, 't' if it only tries, and the record from the flag on
--       ..             for each claim its id
-- Answer               the first token, if all hold and are new: each has the token of the one before it plus 1. Else
--                      {first token, codes, extras...}; codes has one letter for each claim: h holds, new; the others as in place.lua
--
-- The usual batch finds every line empty. Then it costs one EXISTS for all of them, and one SET for each. Arguments are few because each costs as much
-- as a small command.
local class_of, first_class = ARGV[1], 2
if string.sub(class_of, 1, 1) ~= ':' then class_of, first_class = nil, 1 end
local first_id = class_of and 1 + 2 * (string.byte(class_of, 2) - 32) or 2
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

local function class_at(i)
  return class_of and 2 * (string.byte(class_of, i + 2) - 32) or 1
end

local function entries_at(i)
  return stride == 1 and 'hf1:entries:{' .. KEYS[i + 1] .. '}' or KEYS[i * 4 - 1]
end

local function any_lined()
  if count == 1 then return redis.call('EXISTS', entries_at(1)) > 0 end
  local entries = {}
  for i = 1, count do entries[i] = entries_at(i) end
  return redis.call('EXISTS', unpack(entries)) > 0
end

local slow
local lined, ttl, record = any_lined(), ARGV[first_class], string.sub(ARGV[first_class + 1], 2)
for i = 1, count do
  if class_of then ttl, record = ARGV[class_at(i)], string.sub(ARGV[class_at(i) + 1], 2) end
  local token = i == 1 and first_token or string.format('%.0f', base + i - 1)
  local taken = (not lined or redis.call('EXISTS', entries_at(i)) == 0)
    and redis.call('SET', KEYS[stride * (i - 1) + 2], 'hf1:' .. ARGV[first_id + i] .. ':' .. token .. record, 'NX', 'PX', ttl)
  if not taken then
    slow = slow or {}
    slow[#slow + 1] = i
  end
end
if not slow then return first_token end

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

for _, i in ipairs(slow) do enter(i, open_at(stride * (i - 1) + 2, stride == 1), ARGV[first_id + i], class_at(i)) end
finish()
return answers(first_token, table.concat(codes))
