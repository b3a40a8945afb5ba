-- The line, as Redis keeps it; not a script of its own. Included after keys.lua and entry.lua, below a script's first
-- lines.
--
-- What is stored for a lock:
--
--   server key   the user's key behind the prefix. Its value is
--                "hf1:<id>:<record>"  one entry holds, and nothing else is stored
--                "hf1+<id>:<record>"  one entry holds, and there is more below: others wait, or watch
--                "hf1:line"           several hold; they are below, too
--                anything else        a stranger holds: a program that takes this key with SET NX PX
--   its expiry   that of the holder, or the latest of the holders, so that a stranger can take it when they are dead
--
--   entries      hash:  <id>  -> "<expiry ms> <record>" of each entry but the one at the server key
--                       @<id> -> since when it holds (ms); absent: it waits
--                       #     -> "<until when these keys live (ms)>", and then the sums of what holds with an @:
--                                " <limit>:<count>:<weight>" for each limit
--                       !     -> which engines watch: "<engine id> <until when (ms)>", and so on
--   queue        zset:  token -> id of each waiter: the order of the line
--   expiries     zset:  expiry (ms) -> id of each entry in entries
--
--   record       "<token> <flag> <weight> <limit> <ttl ms> <engine id> <holder>". At the server key, the engine id of an
--                entry that has waited is followed by "@<since when it holds (ms)>"
--   flag         a: alive. o: alive, and to outlive its owner. e: evicted, its renewals are refused. x: evicted and out
--                of the line, remembered until it would have expired
--
-- An entry that holds alone is at the server key wherever possible: so it is renewed by one PEXPIRE, however many wait,
-- and followed by one SET. Expiry is judged by the server's clock, entry by entry. An entry that holds is gone when the
-- server key is no longer ours: another program has deleted or replaced it, and may have let others in. All keys expire
-- by themselves.
--
-- A line is opened once for each call, changed, and closed. Meanwhile it is a table with these fields:
--
--   server_key, entries, queue, expiries    the names of its keys
--
--   what holds
--     held_count, held_weight   how many entries hold, and their weight
--     held_limit                the smallest of their limits; UNBOUND if none holds
--     held_by_limit             by limit: {how many of them have it, their weight}
--     sole_id, sole_entry       the one that holds alone, at the server key: its id, and its record as a table
--     still_in_hash             the sole one was a waiter until now, and has not been taken out of the hash yet
--     plus_form                 when the line was opened, the value at the server key began with "hf1+"
--     shared                    several hold: "hf1:line" is at the server key
--     latest_expiry             of those that hold together, as far as this call has written them (ms); 0 if none
--     keep_expiry               the server key already expires after holders that this call does not look at
--     stranger                  a stranger holds: in how long its key expires (ms), 0 or less if that is not known
--     fault, detail             why the line cannot be used, as in place.lua
--
--   what waits, and watches
--     waiting_count             how many wait
--     first_waiter              the id of the first one, once it was looked for
--     watchers                  by the id of an engine that watches: until when (ms); nil if none watches
--
--   what is in the hash
--     has_hash                  there is something beside the server key
--     kept_until                when the keys beside it expire (ms); 0 if they are new
--     longest_life              of the entries and watchers that this call has written (ms)
--     cached_id                 the entry that was read when the line was opened, while that is still true;
--     cached_value, cached_since     its value in the hash, and since when it holds
--
--   what is left to do when it is closed
--     rewrite_lock              write the value at the server key, or delete it
--     rewrite_sums              write the field #
--     watchers_changed          write the field !
--     tell_watchers             holders or waiters have changed: send a message to each engine that watches
--     lacks_expiry              a sorted set is new, and has no expiry yet
--
-- Declared before: now (ms), and what is in keys.lua and entry.lua.
local MARK = 'hf1:line'

local lines = {}

-- ---- an entry that holds alone ----

local function make_sole(line, id, entry, still_in_hash)
  hold(line, entry.weight, entry.limit)
  line.sole_id, line.sole_entry, line.still_in_hash = id, entry, still_in_hash
  line.rewrite_lock, line.shared = true, false
end

local function remove_from_hash(line)
  if not line.still_in_hash then return end
  call('HDEL', line.entries, line.sole_id)
  call('ZREM', line.expiries, line.sole_id)
  line.still_in_hash = false
end

local function release_sole(line)
  remove_from_hash(line)
  unhold(line, line.sole_entry.weight, line.sole_entry.limit)
  line.sole_id, line.rewrite_lock = nil, true
end

-- A second entry is about to hold, too: the one at the server key moves to the hash.
local function spread(line)
  local id, entry = line.sole_id, line.sole_entry
  if not id then return end
  local since = held_since(entry)
  entry.since = nil
  store(line, id, entry, '@' .. id, since)
  line.sole_id, line.still_in_hash, line.shared = nil, false, true
  line.latest_expiry, line.rewrite_sums, line.keep_expiry = entry.expiry, true, false
end

-- ---- coming and going ----

-- The value of an entry in the hash, and since when it holds; nothing where it is not there.
local function find(line, id)
  if line.cached_id == id then return line.cached_value, line.cached_since end
  return unpack(call('HMGET', line.entries, id, '@' .. id))
end

-- Take an entry out of the hash. The caller settles the line afterwards.
local function drop(line, id)
  local value, since = find(line, id)
  local entry = value and parse_value(value)
  line.rewrite_sums, line.tell_watchers, line.cached_id, line.first_waiter = true, true, nil, nil
  call('HDEL', line.entries, id, '@' .. id)
  call('ZREM', line.expiries, id)
  if not entry or entry.flag == 'x' then return end
  if not since then
    line.waiting_count = line.waiting_count - call('ZREM', line.queue, id)
    return
  end
  unhold(line, entry.weight, entry.limit)
  if line.held_count == 0 then line.shared, line.rewrite_lock = false, true end
end

-- Let the front of the line hold what it can have. Expiries stay as they are.
local function settle(line)
  while line.waiting_count > 0 and line.held_weight < line.held_limit and not line.stranger do
    -- If no entry holds, the first waiter does, whatever it wants: so it is taken out of the queue at once.
    local alone = line.held_count == 0
    local id = call(alone and 'ZPOPMIN' or 'ZRANGE', line.queue, unpack(alone and {} or {0, 0}))[1]
    local value = id and call('HGET', line.entries, id)
    local entry = value and parse_value(value)
    if entry and not admits(line, entry.weight, entry.limit) then return end
    if id and not alone then call('ZREM', line.queue, id) end
    line.waiting_count = id and line.waiting_count - 1 or 0
    line.first_waiter, line.cached_id, line.rewrite_sums = nil, nil, true
    -- What cannot be read is not in line: another program has changed our keys, or the server has evicted one.
    if entry then
      if alone then
        entry.since = now
        make_sole(line, id, entry, true)
      else
        spread(line)
        hold(line, entry.weight, entry.limit)
        call('HSET', line.entries, '@' .. id, now)
        line.latest_expiry = math.max(line.latest_expiry, entry.expiry)
      end
      tell(line, id, entry, entry.token)
    end
  end
end

-- What the first waiter was told is not true any more: an entry expires earlier, or it was not the first one until now,
-- and only the first one looks when holders expire. It has to look again.
local function tell_first_waiter(line)
  local id = line.waiting_count > 0 and call('ZRANGE', line.queue, 0, 0)[1]
  local value = id and call('HGET', line.entries, id)
  if value then add_message(parse_value(value).engine_id, id .. ' ? 0 ' .. line.server_key) end
end

-- ---- opening ----

local function read_watchers(line, text)
  line.watchers = {}
  for engine_id, over in string.gmatch(text, '(%S+) (%d+)') do
    if tonumber(over) >= now then line.watchers[engine_id] = tonumber(over) else line.watchers_changed = true end
  end
end

-- What is beside the server key. The entry `id`, which the script will ask for, is read with it.
local function read_rest(line, id)
  local known, watched, value, since = unpack(call('HMGET', line.entries, '#', '!', id, '@' .. id))
  if not known then
    -- Several hold, and the hash with their entries is lost: none of them can be renewed, and the lock will expire.
    if line.shared then line.shared, line.stranger = false, math.max(call('PTTL', line.server_key), 0) end
    return
  end
  line.has_hash, line.cached_id, line.cached_value, line.cached_since = true, id, value, since
  if watched then read_watchers(line, watched) end
  local kept_until, sums = string.match(known, '^(%d+)(.*)$')
  line.kept_until, line.waiting_count = tonumber(kept_until), call('ZCARD', line.queue)
  if sums ~= '' and not line.shared then
    -- The server key is gone, and with it the entries that held together.
    for _, field in ipairs(call('HKEYS', line.entries)) do
      if string.sub(field, 1, 1) == '@' then
        local id = string.sub(field, 2)
        call('HDEL', line.entries, id, field)
        call('ZREM', line.expiries, id)
      end
    end
    line.rewrite_sums, line.cached_id = true, nil
  end
  if line.shared then
    for limit, count, weight in string.gmatch(sums, '(%d+):(%d+):(%d+)') do
      line.held_by_limit[tonumber(limit)] = {tonumber(count), tonumber(weight)}
      line.held_count, line.held_weight = line.held_count + count, line.held_weight + weight
      line.held_limit = math.min(line.held_limit, tonumber(limit))
    end
  end
  for _, dead in ipairs(call('ZRANGEBYSCORE', line.expiries, '-inf', '(' .. now)) do drop(line, dead) end
  if line.rewrite_sums or line.held_count == 0 then settle(line) end
end

-- The line of the i-th entry of this call. Expired entries are dropped, and waiters that can hold because of that do.
local function open(i)
  local server_key, at = server_keys[i], #KEYS + 4 * (i - count)
  local line = lines[server_key]
  if line then return line end
  line = {
    server_key = server_key,
    held_count = 0, held_weight = 0, held_limit = UNBOUND, held_by_limit = {}, waiting_count = 0,
    kept_until = 0, latest_expiry = 0, longest_life = 0,
    entries = entries_of(i),
    queue = clustered and KEYS[at - 1] or 'hf1:queue:{' .. server_key .. '}',
    expiries = clustered and KEYS[at] or 'hf1:expiries:{' .. server_key .. '}',
  }
  lines[server_key] = line
  local value = redis.pcall('GET', server_key)
  if type(value) == 'table' then
    line.stranger, line.fault, line.detail = 0, 'type', call('TYPE', server_key).ok
  elseif value == MARK then
    line.shared, line.keep_expiry = true, true
  elseif value then
    local left, form, id, record = call('PTTL', server_key), string.match(value, '^hf1([:+])([^:]*):(.*)$')
    local version = string.match(value, '^hf(%d+)[:+]')
    line.sole_entry = id and parse(record)
    if line.sole_entry then
      line.sole_id, line.plus_form = id, form == '+'
      line.sole_entry.expiry = now + (left >= 0 and left or line.sole_entry.ttl)
      hold(line, line.sole_entry.weight, line.sole_entry.limit)
      line.tell_watchers = false
      if not line.plus_form then return line end
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
  for engine_id, over in pairs(line.watchers) do
    list[#list + 1] = engine_id .. ' ' .. digits(over)
    if line.tell_watchers then add_message(engine_id, '! - 0 ' .. line.server_key) end
  end
  if not line.watchers_changed then return end
  if #list > 0 then call('HSET', line.entries, '!', table.concat(list, ' ')) else call('HDEL', line.entries, '!') end
end

-- What is beside the server key: nothing if there are no entries, else for as long as any of them may live.
local function close_rest(line)
  remove_from_hash(line)
  if line.watchers then close_watchers(line) end
  -- A hash that is not new has the field #, which is no entry.
  if line.waiting_count == 0 and not line.shared and call('HLEN', line.entries) <= (line.kept_until > 0 and 1 or 0) then
    call('DEL', line.entries, line.queue, line.expiries)
    line.has_hash = false
    return
  end
  local longer = now + line.longest_life > line.kept_until
  if longer then line.kept_until = now + 2 * line.longest_life end
  if longer or line.rewrite_sums then
    local sums = {digits(line.kept_until)}
    if line.shared then
      for limit, held in pairs(line.held_by_limit) do sums[#sums + 1] = limit .. ':' .. held[1] .. ':' .. held[2] end
    end
    call('HSET', line.entries, '#', table.concat(sums, ' '))
  end
  if longer or line.lacks_expiry then
    -- Twice as long as needed, so that it need not be done for each renewal.
    for _, name in ipairs({line.entries, line.expiries, line.queue}) do call('PEXPIREAT', name, line.kept_until) end
  end
end

local function close(line)
  if line.has_hash then close_rest(line) end
  if line.stranger then return end
  if line.shared and line.latest_expiry > 0 then
    local kept = line.keep_expiry and call('PTTL', line.server_key) or 1
    call('SET', line.server_key, MARK, 'PX', math.max(line.latest_expiry - now, kept, 1))
  elseif line.shared then
    return
  elseif line.sole_id and line.rewrite_lock then
    local value = (line.has_hash and 'hf1+' or 'hf1:') .. line.sole_id .. ':' .. unparse(line.sole_entry)
    call('SET', line.server_key, value, 'PX', math.max(line.sole_entry.expiry - now, 1))
  elseif line.sole_id and line.has_hash and not line.plus_form then
    call('SETRANGE', line.server_key, 3, '+')
  elseif line.rewrite_lock and not line.sole_id then
    call('DEL', line.server_key)
  end
end

-- Close every line, and send the messages: one to each engine.
local function finish()
  for _, line in pairs(lines) do close(line) end
  for engine_id, texts in pairs(messages) do call('PUBLISH', 'hf1:' .. engine_id, table.concat(texts, '\0')) end
end
