-- Remove somebody's entry, named by its token.
--
-- KEYS                 K; or K, entries, queue and expiries where every key has to be declared (Cluster)
-- ARGV  1              the token
--       2              expire: refuse its renewals. now: let the next ones hold at once, and remember why it went until it would have expired
-- Answer               1 if such an entry was in line, else 0
local token, how = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include line

local line = open_at(1, #KEYS == 1)

local function find()
  if line.sole then return line.entry.token == token and line.sole end
  local waiting = call('ZRANGEBYSCORE', line.queue, token, token)[1]
  if waiting then return waiting end
  for _, field in ipairs(line.exists and call('HKEYS', line.entries) or {}) do
    local id = string.match(field, '^@(.*)$')
    if id and parse(call('HGET', line.entries, id)).token == token then return id end
  end
end

local id = find()
if not id then
  finish()
  return 0
end
if line.sole and how == 'expire' then
  line.entry.flag = 'e'
  call('SET', line.K, 'hf1:' .. id .. ':' .. unparse(line.entry), 'PX', math.max(line.expiry - now, 1))
  return 1
end
spread(line)
local entry = parse(call('HGET', line.entries, id))
if how == 'now' then
  drop(line, id, true)
  tell(line, id, entry, '', 0)
end
entry.flag = how == 'now' and 'x' or 'e'
call('HSET', line.entries, id, unparse(entry))
settle(line)
finish()
return 1
