-- Which entry has a key on this server, and which entries wait.
--
-- KEYS                 none
-- ARGV  1              the key
-- Answer               {type, value or '', for how long (ms), and for each waiter: its id, its record (see common.lua),
--                      for how long (ms)}
--#include common
local key = ARGV[1]
local kind = call('TYPE', key).ok
local reply = {kind, kind == 'string' and call('GET', key) or '', call('PTTL', key)}
first_waiter(key)
for _, id in ipairs(call('ZRANGE', queue_of(key), 0, -1)) do
  local record = call('HGET', waiters_of(key), id)
  local left = record and string.match(record, '^%d+') - now()
  if left and left > 0 then
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = id, record, left
  end
end
return reply
