-- Renew entries: set their expiry to now + ttl, and say where they stand. What is gone stays gone.
--
-- KEYS                 for each place its K; or K, entries, queue and expiries where every key has to be declared (Cluster)
-- ARGV  1              only if places have several ttls: ':', how many ttls there are, and for each place which is its own; both as characters,
--                      '!' for 1, '"' for 2, and so on
--       ..             each ttl (ms)
--       ..             for each place its id
-- Answer               {codes, extras...}, as in place.lua
--
-- The usual batch finds that every place holds alone. Then it costs one MGET for all of them, and one PEXPIRE for each.
local ttl_of = string.byte(ARGV[1], 1) == 58 and ARGV[1]
local first_id = ttl_of and 1 + string.byte(ttl_of, 2) - 32 or 1
local count = #ARGV - first_id
local stride = #KEYS / count

local Ks = KEYS
if stride ~= 1 then
  Ks = {}
  for i = 1, count do Ks[i] = KEYS[stride * (i - 1) + 1] end
end
local values = redis.call('MGET', unpack(Ks))

local slow, codes, firsts, seconds = {}, {}, {}, {}
local ttl = ARGV[1]
for i = 1, count do
  if ttl_of then ttl = ARGV[string.byte(ttl_of, i + 2) - 31] end
  local id = ARGV[first_id + i]
  local token, same
  if values[i] and string.sub(values[i], 1, #id + 5) == 'hf1:' .. id .. ':' then
    token, same = string.match(values[i], '^(%d+) a %d+ %d+ (%d+) ', #id + 6)
  end
  if same == ttl and redis.call('PEXPIRE', Ks[i], ttl) == 1 then
    codes[i], firsts[i] = 'H', token
  else
    slow[#slow + 1] = i
  end
end
if #slow == 0 then return {string.rep('H', count), unpack(firsts)} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include line
--#include place

for _, i in ipairs(slow) do
  local id = ARGV[first_id + i]
  renew(open(stride * (i - 1) + 1, stride == 1, id), i, id, tonumber(ARGV[ttl_of and string.byte(ttl_of, i + 2) - 31 or 1]))
end
-- An empty letter to whoever waits: so its process knows, once for each beat, that letters still arrive.
if waiter and not letters[waiter] then letters[waiter] = {} end
finish()
return answers(table.concat(codes))
