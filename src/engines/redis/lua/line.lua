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
--                       #     -> "<how many wait> <until when these keys live (ms)>", and " <limit>:<count>:<weight>" for each limit that is held
--   queue        zset:  token -> id of those who wait: the order of the line
--   expiries     zset:  expiry (ms) -> id of everybody
--
--   record       "<token> <flag> <weight> <limit> <ttl ms> <client> <holder>"
--   flag         a: alive. e: evicted, its renewals are refused. x: evicted and out of the line, remembered until it would have expired
--
-- Expiry is judged by the server's clock, entry by entry. An entry that holds is gone when K is no longer ours: somebody deleted or
-- replaced it, and may have let others in. A line is opened once for each call, changed, and closed; the hash, the zsets and K expire by themselves.
--
-- Declared before: now (ms), and what is in keys.lua.
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
  return table.concat({entry.token, entry.flag, entry.weight, entry.limit, entry.ttl, entry.client, entry.holder}, ' ')
end

local function tell(line, id, entry, token, ms)
  local letter = letters[entry.client] or {}
  letters[entry.client] = letter
  local n = #letter
  letter[n + 1], letter[n + 2], letter[n + 3], letter[n + 4] = line.K, id, token, tostring(ms)
end

-- ---- what is held: how many, their weight, and the smallest of their limits ----

local function hold(line, weight, limit)
  local held = line.limits[limit] or {0, 0}
  line.limits[limit] = held
  held[1], held[2] = held[1] + 1, held[2] + weight
  line.count, line.weight = line.count + 1, line.weight + weight
  if limit < line.limit then line.limit = limit end
end

local function unhold(line, weight, limit)
  local held = line.limits[limit]
  line.count, line.weight = line.count - 1, line.weight - weight
  held[1], held[2] = held[1] - 1, held[2] - weight
  if held[1] > 0 then return end
  line.limits[limit] = nil
  line.limit = UNBOUND
  for other in pairs(line.limits) do line.limit = math.min(line.limit, other) end
end

local function admits(line, weight, limit)
  return not line.stranger and line.weight + weight <= math.min(line.limit, limit)
end

local function sums(line)
  local parts = {line.waiting .. ' ' .. line.horizon}
  for limit, held in pairs(line.limits) do parts[#parts + 1] = limit .. ':' .. held[1] .. ':' .. held[2] end
  return table.concat(parts, ' ')
end

-- ---- coming and going ----

-- Its record, and since when it holds.
local function find(line, id)
  if line.found == id then return line.record, line.since end
  return unpack(call('HMGET', line.entries, id, '@' .. id))
end

-- Take an entry out of the line. Whoever calls it settles the line afterwards.
local function drop(line, id, keep)
  local record, since = find(line, id)
  local entry = record and parse(record)
  line.changed, line.found, line.first = true, nil, nil
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
    -- Whoever is first holds if nobody else does.
    local alone = line.count == 0
    local id = call(alone and 'ZPOPMIN' or 'ZRANGE', line.queue, unpack(alone and {} or {0, 0}))[1]
    local record = id and call('HGET', line.entries, id)
    local entry = record and parse(record)
    if entry and not admits(line, entry.weight, entry.limit) then return end
    if id and not alone then call('ZREM', line.queue, id) end
    line.waiting, line.first, line.found, line.changed = id and line.waiting - 1 or 0, nil, nil, true
    -- What cannot be read is not in line: somebody has tampered with our keys, or memory ran short.
    if entry then
      local expiry = tonumber(call('ZSCORE', line.expiries, id) or now)
      hold(line, entry.weight, entry.limit)
      call('HSET', line.entries, '@' .. id, now, '#', sums(line))
      line.changed, line.reach = false, math.max(line.reach, expiry)
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

local function read_rest(line, id)
  local known, record, since = unpack(call('HMGET', line.entries, '#', id, '@' .. id))
  if not known then
    -- Held, by whom is forgotten: nobody can renew it, and it will expire.
    if line.ours then line.ours, line.stranger = false, math.max(call('PTTL', line.K), 0) end
    return
  end
  line.exists, line.found, line.record, line.since = true, id, record, since
  local waiting, horizon, held = string.match(known, '^(%d+) (%d+)(.*)$')
  line.waiting, line.horizon = tonumber(waiting), tonumber(horizon)
  for limit, count, weight in string.gmatch(held, '(%d+):(%d+):(%d+)') do
    line.limits[tonumber(limit)] = {tonumber(count), tonumber(weight)}
    line.count, line.weight = line.count + count, line.weight + weight
    line.limit = math.min(line.limit, tonumber(limit))
  end
  for _, dead in ipairs(call('ZRANGEBYSCORE', line.expiries, '-inf', '(' .. now)) do drop(line, dead) end
  if line.count > 0 and not line.ours then
    for _, field in ipairs(call('HKEYS', line.entries)) do
      if string.sub(field, 1, 1) == '@' then drop(line, string.sub(field, 2)) end
    end
  end
  if line.changed or line.count == 0 then settle(line) end
end

-- The line of the i-th entry of this call. Expired entries are dropped, and whoever can hold because of that does.
local function open(i)
  local K, at = Ks[i], #KEYS + 4 * (i - count)
  local line = lines[K]
  if line then return line end
  line = {
    K = K, count = 0, weight = 0, limit = UNBOUND, limits = {}, waiting = 0, horizon = 0, reach = 0, longest = 0,
    entries = entries_of(i),
    queue = clustered and KEYS[at - 1] or 'hf1:queue:{' .. K .. '}',
    expiries = clustered and KEYS[at] or 'hf1:expiries:{' .. K .. '}',
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
  read_rest(line, ids[i])
  return line
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
    local left = math.max(line.reach - now, line.ours and not line.emptied and call('PTTL', line.K) or 1, 1)
    if line.ours then call('PEXPIRE', line.K, left) else call('SET', line.K, MARK, 'PX', left) end
  end
  if line.count == 0 and line.waiting == 0 and call('HLEN', line.entries) <= 1 then
    call('DEL', line.entries, line.queue, line.expiries)
    return
  end
  local longer = now + line.longest > line.horizon
  if longer then line.horizon = now + 2 * line.longest end
  if longer or line.changed then call('HSET', line.entries, '#', sums(line)) end
  if longer then
    -- Twice as long as needed, so that it need not be done for each renewal.
    for _, name in ipairs({line.entries, line.expiries, line.queue}) do call('PEXPIREAT', name, line.horizon) end
  elseif line.queued then
    call('PEXPIREAT', line.queue, line.horizon)
  end
end

-- Close every line and send the letters, one to each client.
local function finish()
  for _, line in pairs(lines) do close(line) end
  for who, letter in pairs(letters) do call('PUBLISH', 'hf1:' .. who, #letter == 0 and '[]' or cjson.encode(letter)) end
end
