-- What is stored on one server, and how it is read. Included by every script; not a script of its own.
--
--   K                          string with PX, as the published algorithm has it: whose the key is.
--                              "hfr1:<id>:<number> <attempt> <flag> <ttl> <client> <holder>"; anything else is a stranger's.
--                              Flag: a; e if it was evicted, and must not be renewed; o if it is to outlive its process
--   hf1:redlock:queue:{K}      zset: who stands in line, in the order in which they came. Only for hints: the order is not promised
--   hf1:redlock:waiters:{K}    hash: id -> "<expiry> <ttl> <client> <holder>"
--   hf1:redlock:evicted        hash: id -> until when it is to be told so
--   hf1:counters               hash: what was counted to, for each of some thousand groups of keys. Never deleted: tokens come from here
local call = redis.call

local function digits(n)
  return string.format('%.0f', n)
end

local clock
-- What the clock of this server says (ms).
local function now()
  if not clock then
    local time = call('TIME')
    clock = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return clock
end

-- What a group has counted to. Where that is not known any more, it begins at the clock, in microseconds, which is
-- ahead of whatever was counted to; and only then is the clock asked: one that is set back must not take a number back.
local function counted_to(group)
  local count = call('HGET', 'hf1:counters', group)
  if count then return count end
  local time = call('TIME')
  local seed = time[1] .. string.format('%06d', time[2])
  call('HSET', 'hf1:counters', group, seed)
  return seed
end

-- Number, attempt, flag, ttl, and the rest, if the key is that of `id`.
local function mine(value, id)
  if not value or string.sub(value, 1, #id + 6) ~= 'hfr1:' .. id .. ':' then return nil end
  return string.match(value, '^(%d+) (%d+) (%a) (%d+) (.*)$', #id + 7)
end

local function value_of(id, number, attempt, flag, ttl, rest)
  return 'hfr1:' .. id .. ':' .. number .. ' ' .. attempt .. ' ' .. flag .. ' ' .. ttl .. ' ' .. rest
end

local function queue_of(K)
  return 'hf1:redlock:queue:{' .. K .. '}'
end

local function waiters_of(K)
  return 'hf1:redlock:waiters:{' .. K .. '}'
end

local function unregister(K, id)
  if call('ZREM', queue_of(K), id) == 0 then return false end
  call('HDEL', waiters_of(K), id)
  return true
end

-- The first in line, and its record. Those that have expired are dropped on the way.
local function first(K)
  while true do
    local id = call('ZRANGE', queue_of(K), 0, 0)[1]
    if not id then return nil end
    local record = call('HGET', waiters_of(K), id)
    local expiry = record and string.match(record, '^%d+')
    if expiry and tonumber(expiry) > now() then return id, record end
    unregister(K, id)
  end
end

-- Stand in line until `ttl` has passed. `front`: it was the first already.
local function register(K, id, ttl, client, holder, front)
  local queue, waiters = queue_of(K), waiters_of(K)
  call('HSET', waiters, id, digits(now() + ttl) .. ' ' .. ttl .. ' ' .. client .. ' ' .. holder)
  if not call('ZSCORE', queue, id) then
    -- Of those who come in one millisecond, too, each is behind the one before.
    local end_of_line = front and 0 or -1
    local at = call('ZRANGE', queue, end_of_line, end_of_line, 'WITHSCORES')[2]
    call('ZADD', queue, digits(at and (front and at - 1 or math.max(at + 1, now())) or now()), id)
  end
  if call('PTTL', queue) < tonumber(ttl) then
    call('PEXPIRE', queue, 2 * ttl)
    call('PEXPIRE', waiters, 2 * ttl)
  end
end

-- Tell the first in line that the key may be free, unless it is the one that has freed it. Only a hint: it has to win a
-- majority like everybody else.
local function hint(K, by)
  local id, record = first(K)
  if id and id ~= by then call('PUBLISH', 'hf1:' .. string.match(record, '^%d+ %d+ (%S*)'), id .. ' ' .. K) end
end
