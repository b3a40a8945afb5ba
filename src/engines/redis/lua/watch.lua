-- Watch lines, or stop watching them, without standing in them.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua, for lines
--       4              the id of the engine that watches
--       5              for how long it watches unless it says so again (ms); 0: no longer
-- Answer               for each line one character: 1 if that engine was watching it, else 0
--
-- A line that is watched is never in the form that the fast ways of enter.lua and leave.lua look for. So a line without
-- watchers costs nothing more.
local call = redis.call
--#include keys
local engine_id, ttl = ARGV[4], tonumber(ARGV[5])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line

local codes = {}
for i = 1, count do
  local line = open(i)
  local watchers = line.watchers or {}
  codes[i] = watchers[engine_id] and '1' or '0'
  watchers[engine_id] = ttl > 0 and now + ttl or nil
  line.watchers, line.watchers_changed = watchers, true
  if ttl > 0 then line.has_hash, line.longest_life = true, math.max(line.longest_life, ttl) end
end
finish()
return table.concat(codes)
