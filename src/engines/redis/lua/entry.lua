-- Entries, messages, and sums: what line.lua is written in. Included before it; not a script of its own.
--
-- Declared before: call, now (ms), and digits (keys.lua).
local UNBOUND = math.huge

-- What is published when the script ends: by the id of an engine, a list of texts. To the engine of an entry:
-- "<id> <token, or - if it was evicted> <for how long it is held (ms)> <server key>", or, if it waits and is to look
-- again, "<id> ? 0 <server key>"; to one that watches: "! - 0 <server key>".
local messages = {}

-- A record as a table; nil if the text is no record.
local function parse(record)
  local token, flag, weight, limit, ttl, engine_id, since, holder =
    string.match(record, '^(%d+) (%a) (%d+) (%d+) (%d+) ([^ @]*)(%S*) (.*)$')
  return token and {
    token = token, flag = flag, weight = tonumber(weight), limit = tonumber(limit), ttl = tonumber(ttl),
    engine_id = engine_id, since = tonumber(string.sub(since, 2)), holder = holder,
  }
end

local function unparse(entry)
  local engine_id = entry.since and entry.engine_id .. '@' .. digits(entry.since) or entry.engine_id
  return table.concat({entry.token, entry.flag, entry.weight, entry.limit, entry.ttl, engine_id, entry.holder}, ' ')
end

-- Since when an entry at the server key holds (ms). One that never waited holds since its token was made, unless the
-- clock was set back meanwhile.
local function held_since(entry)
  return math.min(entry.since or math.floor(entry.token / 1000), now)
end

-- The value of an entry in the hash, as a table: its record and its expiry.
local function parse_value(value)
  local expiry, record = string.match(value, '^(%d+) (.*)$')
  local entry = parse(record)
  entry.expiry = tonumber(expiry)
  return entry
end

-- Write an entry to the hash. What follows `entry` are further fields of the hash and their values.
local function store(line, id, entry, ...)
  local expiry = digits(entry.expiry)
  call('HSET', line.entries, id, expiry .. ' ' .. unparse(entry), ...)
  call('ZADD', line.expiries, expiry, id)
  line.has_hash, line.cached_id = true, nil
  line.longest_life = math.max(line.longest_life, entry.expiry - now)
  -- If the hash had no entries before, the sorted sets are new, and do not expire yet.
  if line.waiting_count == 0 and not line.shared then line.lacks_expiry = true end
end

local function add_message(engine_id, text)
  local texts = messages[engine_id] or {}
  messages[engine_id], texts[#texts + 1] = texts, text
end

-- Tell the engine of an entry that it holds, or, with the token '-', that it was evicted.
local function tell(line, id, entry, token)
  local held_for = string.format('%.0f', entry.expiry - now)
  add_message(entry.engine_id, id .. ' ' .. token .. ' ' .. held_for .. ' ' .. line.server_key)
end

-- ---- what is held: how many, their weight, and the smallest of their limits ----

local function hold(line, weight, limit)
  local held = line.held_by_limit[limit] or {0, 0}
  line.held_by_limit[limit] = held
  held[1], held[2] = held[1] + 1, held[2] + weight
  line.held_count, line.held_weight, line.tell_watchers = line.held_count + 1, line.held_weight + weight, true
  if limit < line.held_limit then line.held_limit = limit end
end

local function unhold(line, weight, limit)
  local held = line.held_by_limit[limit]
  line.held_count, line.held_weight, line.tell_watchers = line.held_count - 1, line.held_weight - weight, true
  held[1], held[2] = held[1] - 1, held[2] - weight
  if held[1] > 0 then return end
  line.held_by_limit[limit] = nil
  line.held_limit = UNBOUND
  for other in pairs(line.held_by_limit) do line.held_limit = math.min(line.held_limit, other) end
end

-- Whether one more entry could hold.
local function admits(line, weight, limit)
  return not line.stranger and line.held_weight + weight <= math.min(line.held_limit, limit)
end
