-- Which entries are in a line. Expired ones are dropped first, and the waiters that can hold because of that do.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua, for one line
--       4              'all', or 'count': only how many hold and wait
-- Answer               {now (ms), fault or '', detail or '', how many hold, how many wait, and then for each entry, in
--                      no order: id, record, in how long it expires (ms), for how long it has been holding (ms), or ''
--                      if it waits}
--                      A stranger has the id '' and no record. Faults are as in place.lua.
local call = redis.call
--#include keys
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line

local line = open(1)
finish()
local holders = line.held_count + (line.stranger and 1 or 0)
local reply = {now, line.fault or '', line.detail or '', holders, line.waiting_count}
if ARGV[4] == 'count' then return reply end

local function add(id, record, expiry, since)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, record, expiry - now, since and now - since or ''
end

if line.stranger then add('', '', now + line.stranger, now) end
if line.sole_id then
  local entry = line.sole_entry
  add(line.sole_id, unparse(entry), entry.expiry, held_since(entry))
end
if line.has_hash then
  local fields = call('HGETALL', line.entries)
  local since = {}
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 1) == '@' then since[string.sub(fields[i], 2)] = tonumber(fields[i + 1]) end
  end
  for i = 1, #fields, 2 do
    if string.find(fields[i], '^%w') then
      local entry = parse_value(fields[i + 1])
      if entry.flag ~= 'x' then add(fields[i], unparse(entry), entry.expiry, since[fields[i]]) end
    end
  end
end
return reply
