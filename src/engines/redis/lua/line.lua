-- The line, as Redis keeps it. Included by every script below its own first lines; not a script of its own.
--
-- What is stored for the lock K (a key with the user's prefix):
--
--   K            "hf1:<id>:<record>"  one entry is in the line, and holds: nothing else is stored
--                "hf1:line"           several are in the line, and at least one holds; the rest is below
--                anything else        a stranger holds: somebody who takes this key with SET NX PX
--   its expiry   the latest expiry of those who hold, so that a stranger can take it when they are dead
--
--   entries      hash:  <id>  -> record
--                       @<id> -> since when it holds (ms); absent: it waits
--                       #     -> what is held, "<limit>:<count>:<weight> ..." for each limit
--   queue        zset:  token -> id of those who wait: the order of the line
--   expiries     zset:  expiry (ms) -> id of everybody
--
--   record       "<token> <flag> <weight> <limit> <ttl ms> <client> <holder>"
--   flag         a: alive. e: evicted, its renewals are refused. x: evicted and out of the line, remembered until it would have expired
--
-- Expiry is judged by the server's clock, entry by entry. An entry that holds is gone when K is no longer ours: somebody deleted or
-- replaced it, and may have let others in. A line is opened once for each call, changed, and closed; the hash, the zsets and K expire by themselves.
--
-- Declared before: now (ms).
local call = redis.call
local MARK = 'hf1:line'
local UNBOUND = math.huge

local lines = {}
-- What is told to whom: by client, a flat list of K, id, token ('' for evicted), and how long it is held (ms).
local letters = {}

local function parse(record)
  local token, flag, weight, limit, ttl, who, holder = string.match(record, '^(%d+) (%a) (%d+) (%d+) (%d+) (%S*) (.*)$')
  return {
    token = token, flag = flag, weight = tonumber(weight), limit = tonumber(limit), ttl = tonumber(ttl), client = who, holder = holder,
  }
end

local function unparse(entry)
  return entry.token .. ' ' .. entry.flag .. ' ' .. entry.weight .. ' ' .. entry.limit .. ' ' .. entry.ttl .. ' ' .. entry.client .. ' ' .. entry.holder
end

local function tell(line, id, entry, token, ms)
  local letter = letters[entry.client]
  if not letter then
    letter = {}
    letters[entry.client] = letter
  end
  local n = #letter
  letter[n + 1], letter[n + 2], letter[n + 3], letter[n + 4] = line.K, id, token, tostring(ms)
end

-- ---- what is held: how many, their weight, and the smallest of their limits ----

local function hold(line, weight, limit)
  local held = line.limits[limit]
  if not held then
    held = {0, 0}
    line.limits[limit] = held
  end
  held[1], held[2] = held[1] + 1, held[2] + weight
  line.count, line.weight = line.count + 1, line.weight + weight
  if limit < line.limit then line.limit = limit end
end

local function unhold(line, weight, limit)
  local held = line.limits[limit]
  line.count, line.weight = line.count - 1, line.weight - weight
  if held[1] > 1 then
    held[1], held[2] = held[1] - 1, held[2] - weight
    return
  end
  line.limits[limit] = nil
  line.limit = UNBOUND
  for other in pairs(line.limits) do if other < line.limit then line.limit = other end end
end

local function admits(line, weight, limit)
  return not line.stranger and line.weight + weight <= math.min(line.limit, limit)
end

local function sums(line)
  local parts = {}
  for limit, held in pairs(line.limits) do parts[#parts + 1] = limit .. ':' .. held[1] .. ':' .. held[2] end
  return table.concat(parts, ' ')
end

-- ---- coming and going ----

-- Take an entry out of the line. Whoever calls it settles the line afterwards.
local function drop(line, id, keep)
  local record, since = unpack(call('HMGET', line.entries, id, '@' .. id))
  local entry = record and parse(record)
  line.changed = true
  if not keep then
    call('HDEL', line.entries, id, '@' .. id)
    call('ZREM', line.expiries, id)
  elseif since then
    call('HDEL', line.entries, '@' .. id)
  end
  if not entry or entry.flag == 'x' then return end
  if since then
    unhold(line, entry.weight, entry.limit)
    if line.count == 0 then line.emptied = true end
  else
    line.waiting = line.waiting - call('ZREM', line.queue, id)
  end
end

-- Let the front of the line hold what it can have. Expiries stay as they are.
local function settle(line)
  while line.waiting > 0 and line.weight < line.limit and not line.stranger do
    local id = call('ZRANGE', line.queue, 0, 0)[1]
    local record = id and call('HGET', line.entries, id)
    if not record then
      -- Somebody has tampered with our keys, or memory ran short: what cannot be read is not in line.
      if id then call('ZREM', line.queue, id) end
      line.waiting = id and line.waiting - 1 or 0
    else
      local entry = parse(record)
      if not admits(line, entry.weight, entry.limit) then return end
      local expiry = tonumber(call('ZSCORE', line.expiries, id) or now)
      call('ZREM', line.queue, id)
      line.waiting = line.waiting - 1
      hold(line, entry.weight, entry.limit)
      call('HSET', line.entries, '@' .. id, now, '#', sums(line))
      line.changed = false
      line.reach = math.max(line.reach, expiry)
      tell(line, id, entry, entry.token, expiry - now)
    end
  end
end

-- ---- opening ----

local function read_sole(line, value)
  local id, record = string.match(value, '^hf1:([^:]*):(.*)$')
  local left = call('PTTL', line.K)
  line.sole, line.entry = id, parse(record)
  line.expiry = now + (left >= 0 and left or line.entry.ttl)
  hold(line, line.entry.weight, line.entry.limit)
end

local function read_rest(line)
  local held = call('HGET', line.entries, '#')
  if not held then
    -- Held, by whom is forgotten: nobody can renew it, and it will expire.
    if line.ours then line.ours, line.stranger = false, math.max(call('PTTL', line.K), 0) end
    return
  end
  line.exists = true
  for limit, count, weight in string.gmatch(held, '(%d+):(%d+):(%d+)') do
    line.limits[tonumber(limit)] = {tonumber(count), tonumber(weight)}
    line.count, line.weight = line.count + count, line.weight + weight
    line.limit = math.min(line.limit, tonumber(limit))
  end
  line.waiting = call('ZCARD', line.queue)
  for _, id in ipairs(call('ZRANGEBYSCORE', line.expiries, '-inf', '(' .. now)) do drop(line, id) end
  if line.count > 0 and not line.ours then
    for _, field in ipairs(call('HKEYS', line.entries)) do
      if string.sub(field, 1, 1) == '@' then drop(line, string.sub(field, 2)) end
    end
  end
  if line.changed or line.count == 0 then settle(line) end
end

-- The line of K. Expired entries are dropped, and whoever can hold because of that does.
local function open(K, entries, queue, expiries)
  local line = lines[K]
  if line then return line end
  line = {
    K = K, entries = entries, queue = queue, expiries = expiries,
    count = 0, weight = 0, limit = UNBOUND, limits = {}, waiting = 0, reach = 0, longest = 0,
  }
  lines[K] = line
  local value = redis.pcall('GET', K)
  if type(value) == 'table' then
    line.stranger, line.fault, line.detail = 0, 'type', call('TYPE', K).ok
  elseif value == MARK then
    line.ours = true
  elseif value and string.sub(value, 1, 4) == 'hf1:' then
    read_sole(line, value)
    return line
  elseif value then
    local version = string.match(value, '^hf(%d+):')
    line.stranger = call('PTTL', K)
    if version then
      line.fault, line.detail = 'version', version
    elseif line.stranger < 0 then
      line.stranger, line.fault, line.detail = 0, 'forever', 'string'
    end
  end
  read_rest(line)
  return line
end

-- The line whose K is at that index of KEYS. Outside Cluster only K is sent, and the other names are made here: each argument costs.
local function open_at(at, alone)
  local K = KEYS[at]
  if not alone then return open(K, KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]) end
  return open(K, 'hf1:entries:{' .. K .. '}', 'hf1:queue:{' .. K .. '}', 'hf1:expiries:{' .. K .. '}')
end

-- A second entry comes: the first one moves from K to the hash.
local function spread(line)
  if line.exists then return end
  line.exists, line.changed = true, true
  local id = line.sole
  if not id then return end
  line.sole, line.ours = nil, true
  call('HSET', line.entries, id, unparse(line.entry), '@' .. id, math.floor(line.entry.token / 1000), '#', sums(line))
  call('ZADD', line.expiries, line.expiry, id)
  call('SET', line.K, MARK, 'PX', math.max(line.expiry - now, 1))
  line.longest = math.max(line.longest, line.expiry - now)
end

-- ---- closing ----

local function close(line)
  if line.sole or not line.exists then return end
  if line.count == 0 and line.ours then
    call('DEL', line.K)
  elseif line.reach > 0 and line.count > 0 then
    -- Never earlier than the expiry of anybody who holds: those whom we did not meet in this call are covered by what is there.
    local left = line.reach - now
    if line.ours and not line.emptied then left = math.max(left, call('PTTL', line.K)) end
    if line.ours then
      call('PEXPIRE', line.K, math.max(left, 1))
    else
      call('SET', line.K, MARK, 'PX', math.max(left, 1))
    end
  end
  if line.count == 0 and line.waiting == 0 and call('HLEN', line.entries) <= 1 then
    call('DEL', line.entries, line.queue, line.expiries)
    return
  end
  if line.changed then call('HSET', line.entries, '#', sums(line)) end
  if line.longest == 0 then return end
  -- Twice as long as needed, so that it need not be done for each renewal.
  local left = call('PTTL', line.entries)
  if left < line.longest then
    left = 2 * line.longest
    call('PEXPIRE', line.entries, left)
    call('PEXPIRE', line.expiries, left)
    call('PEXPIRE', line.queue, left)
  elseif line.queued then
    call('PEXPIRE', line.queue, left)
  end
end

-- Close every line and send the letters, one to each client.
local function finish()
  for _, line in pairs(lines) do close(line) end
  for who, letter in pairs(letters) do call('PUBLISH', 'hf1:' .. who, #letter == 0 and '[]' or cjson.encode(letter)) end
end
