-- Change records, and leave the lines beside them, each if its change is made (`putLeaving` of a store). The next ones
-- hold before this script ends, and are told.
--
-- KEYS  1              the counter that versions come from; then, in Cluster, the record key of each change; then as in
--                      keys.lua
-- ARGV  1..3           as in keys.lua; the id is that of the entry which leaves
--       4..            for each change two words, as in record.lua
-- Answer               {the time: seconds, microseconds; the first version}, if all are made, and no mark is stored:
--                      each has the version of the one before it plus 1. Else as in record.lua
--
-- The usual batch finds that every entry holds alone, and that no record was changed. Then it costs one MGET and one
-- DEL for all of them, and one SET for each.
local call = redis.call
--#include counter

-- For how long what is asked lives, if it is a plain value instead of the one at `value`, and the entry `id` is alone
-- at the server key, which has `lock`.
local function plain_ttl(at, value, lock, id)
  local ttl, version = string.match(ARGV[at], '^(%d+) %- %- (%d+) %-$')
  if not ttl or not value or not lock then return false end
  return string.find(value, 'hf1=' .. version .. ' 0 ', 1, true) == 1
    and string.find(lock, 'hf1:' .. id .. ':', 1, true) == 1 and ttl
end

if more == 0 then
  -- The least that can be done for one: nothing below is needed.
  local server_key, record = ARGV[1], 'hf1:record:{' .. ARGV[1] .. '}'
  if server_key == '' then record, server_key = KEYS[2], KEYS[3] end
  local found = call('MGET', record, server_key)
  local ttl = plain_ttl(4, found[1], found[2], ARGV[2])
  if ttl then
    call('SET', record, 'hf1=' .. first_token .. ' 0 ' .. ARGV[5], 'PX', ttl)
    call('DEL', server_key)
    return {time[1], time[2], first_token}
  end
end

--#include keys
--#include record

local slow, free, seen, names = {}, {}, {}, {}
for i = 1, count do names[2 * i - 1], names[2 * i] = record_of(i), server_keys[i] end
local found = call('MGET', unpack(names))
for i = 1, count do
  local server_key, content = server_keys[i], ARGV[2 * i + 3]
  local ttl = not seen[server_key] and plain_ttl(2 * i + 2, found[2 * i - 1], found[2 * i], ids[i])
  if ttl then
    call('SET', names[2 * i - 1], 'hf1=' .. digits(base + i - 1) .. ' 0 ' .. content, 'PX', ttl)
    free[#free + 1] = server_key
  else
    slow[#slow + 1] = i
  end
  seen[server_key] = true
end
if #free > 0 then call('DEL', unpack(free)) end
if #slow == 0 then return {time[1], time[2], first_token} end
for i = 1, count do answer_change(i, 's', digits(base + i - 1), '0') end

local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line
--#include departure
for _, i in ipairs(slow) do
  if change(i, 2 * i + 2, true) then leave(open(i), ids[i]) end
end
finish()
return reply
