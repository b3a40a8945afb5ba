-- Entries, letters, and sums: what line.lua is written in. Included before it; not a script of its own.
--
-- Declared before: call, now (ms).
local UNBOUND = math.huge

-- What is told to whom: by client, a list of "<id> <token, or - if it was evicted> <for how long it is held (ms)> <K>".
-- To a client that watches: "! - 0 <K>".
local letters = {}

-- Nil: it is none.
local function parse(record)
  local token, flag, weight, limit, ttl, who, holder = string.match(record, '^(%d+) (%a) (%d+) (%d+) (%d+) (%S*) (.*)$')
  return token and {
    token = token, flag = flag, weight = tonumber(weight), limit = tonumber(limit), ttl = tonumber(ttl), client = who, holder = holder,
  }
end

local function unparse(entry)
  return table.concat({entry.token, entry.flag, entry.weight, entry.limit, entry.ttl, entry.client, entry.holder}, ' ')
end

-- An entry as it is in the hash.
local function parse_value(value)
  local expiry, record = string.match(value, '^(%d+) (.*)$')
  local entry = parse(record)
  entry.expiry = tonumber(expiry)
  return entry
end

local function store(line, id, entry, ...)
  local expiry = digits(entry.expiry)
  call('HSET', line.entries, id, expiry .. ' ' .. unparse(entry), ...)
  call('ZADD', line.expiries, expiry, id)
  line.exists, line.found = true, nil
  line.longest = math.max(line.longest, entry.expiry - now)
  -- Where nobody was, the sorted sets are new, and do not expire yet.
  if line.waiting == 0 and not line.several then line.bare = true end
end

local function write_to(who, text)
  local letter = letters[who] or {}
  letters[who], letter[#letter + 1] = letter, text
end

local function tell(line, id, entry, token)
  write_to(entry.client, id .. ' ' .. token .. ' ' .. string.format('%.0f', entry.expiry - now) .. ' ' .. line.K)
end

-- ---- what is held: how many, their weight, and the smallest of their limits ----

local function hold(line, weight, limit)
  local held = line.limits[limit] or {0, 0}
  line.limits[limit] = held
  held[1], held[2] = held[1] + 1, held[2] + weight
  line.count, line.weight, line.stirred = line.count + 1, line.weight + weight, true
  if limit < line.limit then line.limit = limit end
end

local function unhold(line, weight, limit)
  local held = line.limits[limit]
  line.count, line.weight, line.stirred = line.count - 1, line.weight - weight, true
  held[1], held[2] = held[1] - 1, held[2] - weight
  if held[1] > 0 then return end
  line.limits[limit] = nil
  line.limit = UNBOUND
  for other in pairs(line.limits) do line.limit = math.min(line.limit, other) end
end

local function admits(line, weight, limit)
  return not line.stranger and line.weight + weight <= math.min(line.limit, limit)
end
