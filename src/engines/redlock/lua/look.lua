-- Who has a key on this server, and who stands in line.
--
-- KEYS                 none
-- ARGV  1              K
-- Answer               {type, value or '', for how long (ms), and for each in line: its id, "<expiry> <ttl> <client> <holder>", for how long (ms)}
--#include common
local K = ARGV[1]
local kind = call('TYPE', K).ok
local reply = {kind, kind == 'string' and call('GET', K) or '', call('PTTL', K)}
first(K)
for _, id in ipairs(call('ZRANGE', queue_of(K), 0, -1)) do
  local record = call('HGET', waiters_of(K), id)
  local left = record and string.match(record, '^%d+') - now()
  if left and left > 0 then
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = id, record, left
  end
end
return reply
