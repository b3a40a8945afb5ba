-- What is stored on one server, and how it is read. Included by every script; not a script of its own.
--
-- Here `key` is the key as the server has it, with the prefix: `serverKey` in TypeScript.
--
--   <key>                        string with PX, as the published algorithm has it: which entry has the key.
--                                "hfr1:<id>:<number> <attempt> <flag> <ttl> <engine id> <holder>"; anything else is a
--                                stranger's. Flag: e if it was evicted, and must not be renewed; o if it is to outlive
--                                its process; else a
--   hf1:redlock:queue:{<key>}    zset: which entries wait, in the order in which they came. Only for signals: the order
--                                is not promised
--   hf1:redlock:waiters:{<key>}  hash: id -> the record of a waiter, "<expiry> <ttl> <engine id> <holder>"
--   hf1:redlock:evicted          hash: id -> until when the holder is to be told so
--   hf1:counters                 hash: group -> what was counted to, for each of some thousand groups of keys. Never
--                                deleted: tokens come from here
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

-- What a group has counted to. Where that is not known any more, it begins at the clock, in microseconds: that is ahead
-- of all that was counted to. Only then is the clock asked: a clock that is set back must not take a number back.
local function counted_to(group)
  local count = call('HGET', 'hf1:counters', group)
  if count then return count end
  local time = call('TIME')
  local seed = time[1] .. string.format('%06d', time[2])
  call('HSET', 'hf1:counters', group, seed)
  return seed
end

-- Number, attempt, flag, ttl, and the rest ("<engine id> <holder>"), if the entry `id` has the key. Else nil.
local function parse_own(value, id)
  if not value or string.sub(value, 1, #id + 6) ~= 'hfr1:' .. id .. ':' then return nil end
  return string.match(value, '^(%d+) (%d+) (%a) (%d+) (.*)$', #id + 7)
end

local function value_of(id, number, attempt, flag, ttl, rest)
  return 'hfr1:' .. id .. ':' .. number .. ' ' .. attempt .. ' ' .. flag .. ' ' .. ttl .. ' ' .. rest
end

local function queue_of(key)
  return 'hf1:redlock:queue:{' .. key .. '}'
end

local function waiters_of(key)
  return 'hf1:redlock:waiters:{' .. key .. '}'
end

local function leave_line(key, id)
  if call('ZREM', queue_of(key), id) == 0 then return false end
  call('HDEL', waiters_of(key), id)
  return true
end

-- The id of the first waiter, and its record. Waiters before it that have expired are dropped.
local function first_waiter(key)
  while true do
    local id = call('ZRANGE', queue_of(key), 0, 0)[1]
    if not id then return nil end
    local record = call('HGET', waiters_of(key), id)
    local expiry = record and string.match(record, '^%d+')
    if expiry and tonumber(expiry) > now() then return id, record end
    leave_line(key, id)
  end
end

-- Stand in line until `ttl` has passed, or stay there. `in_front`: an entry that is not in line comes first.
local function stand_in_line(key, id, ttl, engine_id, holder, in_front)
  local queue, waiters = queue_of(key), waiters_of(key)
  call('HSET', waiters, id, digits(now() + ttl) .. ' ' .. ttl .. ' ' .. engine_id .. ' ' .. holder)
  if not call('ZSCORE', queue, id) then
    -- Of the entries that come in one millisecond, too, each is behind the one before.
    local end_of_line = in_front and 0 or -1
    local at = call('ZRANGE', queue, end_of_line, end_of_line, 'WITHSCORES')[2]
    call('ZADD', queue, digits(at and (in_front and at - 1 or math.max(at + 1, now())) or now()), id)
  end
  if call('PTTL', queue) < tonumber(ttl) then
    call('PEXPIRE', queue, 2 * ttl)
    call('PEXPIRE', waiters, 2 * ttl)
  end
end

-- Tell the first waiter that the key may be free, unless it is the entry `by`, which has freed it. Only a signal: the
-- waiter has to win a majority like every other.
local function signal_first(key, by)
  local id, record = first_waiter(key)
  if id and id ~= by then call('PUBLISH', 'hf1:' .. string.match(record, '^%d+ %d+ (%S*)'), id .. ' ' .. key) end
end
