-- Renew entries: set their expiry to now + ttl, and say where they stand. What is gone stays gone.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua
--       4              which ttl each place has, if there are several: '!' for the first, '"' for the second, and so
--                      on; else nothing
--       ..             each ttl (ms), with a + before it if the entry is to outlive its owner
-- Answer               {codes, extras...}, as in place.lua
--
-- The usual batch finds every entry at its server key. Then it costs one MGET for all, and one PEXPIRE for each.
local call = redis.call
--#include keys
local ttl_of = ARGV[4] ~= '' and ARGV[4]

-- The ttl of the i-th place, as it is written. '!' is character 33, and says that it is the first ttl, ARGV[5].
local function ttl_at(i)
  return ARGV[ttl_of and string.byte(ttl_of, i) - 28 or 5]
end

local values = call('MGET', unpack(server_keys))

local slow, codes, firsts, seconds = {}, {}, {}, {}
-- If a batch names one entry twice, the second renewal counts: once the first is put off, so is the second.
local put_off = {}
for i = 1, count do
  local id, ttl = ids[i], ttl_at(i)
  local token, stored_ttl
  local value = not put_off[id] and values[i]
  if value and string.sub(value, 1, 3) == 'hf1' and string.sub(value, 5, #id + 5) == id .. ':' then
    token, stored_ttl = string.match(value, '^(%d+) a %d+ %d+ (%d+) ', #id + 6)
  end
  if stored_ttl == ttl and call('PEXPIRE', server_keys[i], ttl) == 1 then
    codes[i], firsts[i] = 'H', token
  else
    slow[#slow + 1], put_off[id] = i, true
  end
end
if #slow == 0 then return {string.rep('H', count), unpack(firsts)} end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line
--#include place

for _, i in ipairs(slow) do renew(open(i), i, ids[i], tonumber(ttl_at(i)), string.sub(ttl_at(i), 1, 1) == '+') end
-- An empty message to the engine of a waiter: so its process knows, once for each beat, that messages still arrive.
if waiting_engine and not messages[waiting_engine] then messages[waiting_engine] = {} end
finish()
return answers(table.concat(codes))
