-- Remove somebody's entry, named by its token.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua, for one line
--       4              the token
--       5              expire: refuse the renewals of a holder. now: let the next ones hold at once. A waiter goes at once either way.
-- Answer               1 if such an entry was in line, else 0
--
-- Why it went is remembered until it would have expired.
local call = redis.call
--#include keys
local token, how = ARGV[4], ARGV[5]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line

local line = open(1)

-- Its id, and whether it waits.
local function named()
  if line.sole and line.entry.token == token then return line.sole, false end
  local waiting = line.exists and call('ZRANGEBYSCORE', line.queue, token, token)[1]
  if waiting then return waiting, true end
  for _, field in ipairs(line.exists and call('HKEYS', line.entries) or {}) do
    local id = string.match(field, '^@(.*)$')
    if id and parse_value(call('HGET', line.entries, id)).token == token then return id, false end
  end
end

local function evict(id, flag)
  if line.sole == id and flag == 'e' then
    line.entry.flag, line.rewrite = flag, true
    return
  end
  local entry = line.sole == id and line.entry or parse_value((find(line, id)))
  if flag == 'x' then
    if line.sole == id then unhold_alone(line) else drop(line, id) end
    tell(line, id, entry, '-')
  end
  entry.flag = flag
  store(line, id, entry)
  settle(line)
end

local id, waits = named()
if id then evict(id, (waits or how == 'now') and 'x' or 'e') end
finish()
return id and 1 or 0
