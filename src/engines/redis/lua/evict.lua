-- Remove an entry of another process, named by its token.
--
-- KEYS                 as in keys.lua
-- ARGV  1..3           as in keys.lua, for one line
--       4              the token
--       5              expire: refuse the renewals of a holder. now: let the next ones hold at once. A waiter goes at
--                      once either way
-- Answer               1 if such an entry was in line, else 0
--
-- Its owner is told at once. That it was evicted is remembered until it would have expired, for an owner that was not
-- reached.
local call = redis.call
--#include keys
local token, how = ARGV[4], ARGV[5]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line

local line = open(1)

-- The id of the entry with that token, and whether it waits; nothing if there is none.
local function find_by_token()
  if line.sole_id and line.sole_entry.token == token then return line.sole_id, false end
  local waiting = line.has_hash and call('ZRANGEBYSCORE', line.queue, token, token)[1]
  if waiting then return waiting, true end
  for _, field in ipairs(line.has_hash and call('HKEYS', line.entries) or {}) do
    local id = string.match(field, '^@(.*)$')
    if id and parse_value(call('HGET', line.entries, id)).token == token then return id, false end
  end
end

local function evict(id, flag)
  local entry = line.sole_id == id and line.sole_entry or parse_value((find(line, id)))
  tell(line, id, entry, '-')
  if line.sole_id == id and flag == 'e' then
    entry.flag, line.rewrite_lock = flag, true
    return
  end
  local first = line.waiting_count > 1 and call('ZRANGE', line.queue, 0, 0)[1]
  if flag == 'x' then
    if line.sole_id == id then release_sole(line) else drop(line, id) end
  end
  entry.flag = flag
  store(line, id, entry)
  settle(line)
  if flag == 'x' and first == id then tell_first_waiter(line) end
end

local id, waits = find_by_token()
if id then evict(id, (waits or how == 'now') and 'x' or 'e') end
finish()
return id and 1 or 0
