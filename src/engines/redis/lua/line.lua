-- The line, as Redis keeps it; not a script of its own. Included after keys.lua and entry.lua, below a script's first
-- lines.
--
-- What is stored for the lock K (a key with the user's prefix):
--
--   K            "hf1:<id>:<record>"  one entry holds, and nothing else is stored
--                "hf1+<id>:<record>"  one entry holds, and there is more below: others wait, or watch
--                "hf1:line"           several hold; they are below, too
--                anything else        a stranger holds: somebody who takes this key with SET NX PX
--   its expiry   that of the holder, or the latest of those who hold, so that a stranger can take it when they are dead
--
--   entries      hash:  <id>  -> "<expiry ms> <record>" of everybody but the one at K
--                       @<id> -> since when it holds (ms); absent: it waits
--                       #     -> "<until when these keys live (ms)>", and " <limit>:<count>:<weight>" for each limit of those with an @
--                       !     -> who watches: "<client> <until when (ms)>", and so on
--   queue        zset:  token -> id of those who wait: the order of the line
--   expiries     zset:  expiry (ms) -> id of everybody in entries
--
--   record       "<token> <flag> <weight> <limit> <ttl ms> <client> <holder>"
--   flag         a: alive. o: alive, and to outlive its owner. e: evicted, its renewals are refused. x: evicted and out of the line, remembered until it would have expired
--
-- One who holds is at K wherever possible: so it is renewed by one PEXPIRE, however many wait, and followed by one SET.
-- Expiry is judged by the server's clock, entry by entry. An entry that holds is gone when K is no longer ours:
-- somebody deleted or replaced it, and may have let others in. A line is opened once for each call, changed, and
-- closed; all keys expire by themselves.
--
-- Declared before: now (ms), and what is in keys.lua and entry.lua.
local MARK = 'hf1:line'

local lines = {}

-- ---- who holds alone ----

-- `lifted`: it comes from the hash, where it still is.
local function hold_alone(line, id, entry, lifted)
  hold(line, entry.weight, entry.limit)
  line.sole, line.entry, line.rewrite, line.lifted, line.several = id, entry, true, lifted, false
end

local function unlift(line)
  if not line.lifted then return end
  call('HDEL', line.entries, line.sole)
  call('ZREM', line.expiries, line.sole)
  line.lifted = false
end

local function unhold_alone(line)
  unlift(line)
  unhold(line, line.entry.weight, line.entry.limit)
  line.sole, line.rewrite = nil, true
end

-- A second one holds with the one at K, which therefore moves to the hash.
local function spread(line)
  local id, entry = line.sole, line.entry
  if not id then return end
  store(line, id, entry, '@' .. id, line.lifted and now or math.min(math.floor(entry.token / 1000), now))
  line.sole, line.lifted, line.several, line.reach, line.changed, line.kept = nil, false, true, entry.expiry, true, false
end

-- ---- coming and going ----

-- Its value in the hash, and since when it holds.
local function find(line, id)
  if line.found == id then return line.value, line.since end
  return unpack(call('HMGET', line.entries, id, '@' .. id))
end

-- Take an entry out of the hash. Whoever calls it settles the line afterwards.
local function drop(line, id)
  local value, since = find(line, id)
  local entry = value and parse_value(value)
  line.changed, line.stirred, line.found, line.first = true, true, nil, nil
  call('HDEL', line.entries, id, '@' .. id)
  call('ZREM', line.expiries, id)
  if not entry or entry.flag == 'x' then return end
  if not since then
    line.waiting = line.waiting - call('ZREM', line.queue, id)
    return
  end
  unhold(line, entry.weight, entry.limit)
  if line.count == 0 then line.several, line.rewrite = false, true end
end

-- Let the front of the line hold what it can have. Expiries stay as they are.
local function settle(line)
  while line.waiting > 0 and line.weight < line.limit and not line.stranger do
    -- Whoever is first holds if nobody else does.
    local alone = line.count == 0
    local id = call(alone and 'ZPOPMIN' or 'ZRANGE', line.queue, unpack(alone and {} or {0, 0}))[1]
    local value = id and call('HGET', line.entries, id)
    local entry = value and parse_value(value)
    if entry and not admits(line, entry.weight, entry.limit) then return end
    if id and not alone then call('ZREM', line.queue, id) end
    line.waiting, line.first, line.found, line.changed = id and line.waiting - 1 or 0, nil, nil, true
    -- What cannot be read is not in line: somebody has tampered with our keys, or memory ran short.
    if entry then
      if alone then
        hold_alone(line, id, entry, true)
      else
        spread(line)
        hold(line, entry.weight, entry.limit)
        call('HSET', line.entries, '@' .. id, now)
        line.reach = math.max(line.reach, entry.expiry)
      end
      tell(line, id, entry, entry.token)
    end
  end
end

-- ---- opening ----

local function read_watchers(line, text)
  line.watchers = {}
  for who, over in string.gmatch(text, '(%S+) (%d+)') do
    if tonumber(over) >= now then line.watchers[who] = tonumber(over) else line.rewatched = true end
  end
end

local function read_rest(line, id)
  local known, watched, value, since = unpack(call('HMGET', line.entries, '#', '!', id, '@' .. id))
  if not known then
    -- Held, by whom is forgotten: nobody can renew it, and it will expire.
    if line.several then line.several, line.stranger = false, math.max(call('PTTL', line.K), 0) end
    return
  end
  line.exists, line.found, line.value, line.since = true, id, value, since
  if watched then read_watchers(line, watched) end
  local horizon, held = string.match(known, '^(%d+)(.*)$')
  line.horizon, line.waiting = tonumber(horizon), call('ZCARD', line.queue)
  if held ~= '' and not line.several then
    -- K is gone, and with it those who held together.
    for _, field in ipairs(call('HKEYS', line.entries)) do
      if string.sub(field, 1, 1) == '@' then
        local id = string.sub(field, 2)
        call('HDEL', line.entries, id, field)
        call('ZREM', line.expiries, id)
      end
    end
    line.changed, line.found = true, nil
  end
  if line.several then
    for limit, count, weight in string.gmatch(held, '(%d+):(%d+):(%d+)') do
      line.limits[tonumber(limit)] = {tonumber(count), tonumber(weight)}
      line.count, line.weight = line.count + count, line.weight + weight
      line.limit = math.min(line.limit, tonumber(limit))
    end
  end
  for _, dead in ipairs(call('ZRANGEBYSCORE', line.expiries, '-inf', '(' .. now)) do drop(line, dead) end
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
    -- `kept`: the expiry of K covers those of the holders whom this call does not meet.
    line.several, line.kept = true, true
  elseif value then
    local left, form, id, record = call('PTTL', K), string.match(value, '^hf1([:+])([^:]*):(.*)$')
    local version = string.match(value, '^hf(%d+)[:+]')
    line.entry = id and parse(record)
    if line.entry then
      line.sole, line.marked = id, form == '+'
      line.entry.expiry = now + (left >= 0 and left or line.entry.ttl)
      hold(line, line.entry.weight, line.entry.limit)
      line.stirred = false
      if not line.marked then return line end
    elseif version then
      line.stranger, line.fault, line.detail = left, 'version', version
    elseif left < 0 then
      line.stranger, line.fault, line.detail = 0, 'forever', 'string'
    else
      line.stranger = left
    end
  end
  read_rest(line, ids[i])
  return line
end

-- ---- closing ----

local function close_watchers(line)
  local list = {}
  for who, over in pairs(line.watchers) do
    list[#list + 1] = who .. ' ' .. digits(over)
    if line.stirred then write_to(who, '! - 0 ' .. line.K) end
  end
  if not line.rewatched then return end
  if #list > 0 then call('HSET', line.entries, '!', table.concat(list, ' ')) else call('HDEL', line.entries, '!') end
end

-- What is beside K: nothing if nobody is there, else for as long as anybody may live.
local function close_rest(line)
  unlift(line)
  if line.watchers then close_watchers(line) end
  -- Without a horizon it is new, and # not yet in it.
  if line.waiting == 0 and not line.several and call('HLEN', line.entries) <= (line.horizon > 0 and 1 or 0) then
    call('DEL', line.entries, line.queue, line.expiries)
    line.exists = false
    return
  end
  local longer = now + line.longest > line.horizon
  if longer then line.horizon = now + 2 * line.longest end
  if longer or line.changed then
    local sums = {digits(line.horizon)}
    if line.several then
      for limit, held in pairs(line.limits) do sums[#sums + 1] = limit .. ':' .. held[1] .. ':' .. held[2] end
    end
    call('HSET', line.entries, '#', table.concat(sums, ' '))
  end
  if longer or line.bare then
    -- Twice as long as needed, so that it need not be done for each renewal.
    for _, name in ipairs({line.entries, line.expiries, line.queue}) do call('PEXPIREAT', name, line.horizon) end
  end
end

local function close(line)
  if line.exists then close_rest(line) end
  if line.stranger then return end
  if line.several and line.reach > 0 then
    call('SET', line.K, MARK, 'PX', math.max(line.reach - now, line.kept and call('PTTL', line.K) or 1, 1))
  elseif line.several then
    return
  elseif line.sole and line.rewrite then
    local value = (line.exists and 'hf1+' or 'hf1:') .. line.sole .. ':' .. unparse(line.entry)
    call('SET', line.K, value, 'PX', math.max(line.entry.expiry - now, 1))
  elseif line.sole and line.exists and not line.marked then
    call('SETRANGE', line.K, 3, '+')
  elseif line.rewrite and not line.sole then
    call('DEL', line.K)
  end
end

-- Close every line and send the letters, one to each client.
local function finish()
  for _, line in pairs(lines) do close(line) end
  for who, letter in pairs(letters) do call('PUBLISH', 'hf1:' .. who, table.concat(letter, '\0')) end
end
