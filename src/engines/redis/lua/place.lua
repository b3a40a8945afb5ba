-- A place in line, and what is said of it. Included after line.lua by the scripts that answer where an entry stands;
-- not a script of its own.
--
-- An answer is one letter in `codes`, and what belongs to it in `firsts` and `seconds`, which the script has declared:
--   H token         holds, for the ttl that was asked for
--   w ahead ms      waits, first in line; look again after so long, should nothing be heard until then
--   q ahead ms      the same, with others before it
--   s ahead ms      waits, first in line, for a stranger, who will not tell when it goes; its key expires after so long
--   b ahead         busy
--   u, e            gone: unknown, evicted
--   f               the line is full
--   x fault detail  a key of another type, without expiry, or of a newer version
--
-- `waiter` is the client of somebody who waits, if there was one.
local waiter

local function answer(i, code, first, second)
  codes[i], firsts[i], seconds[i] = code, first, second
end

-- All answers, after what the script itself has to say.
local function answers(...)
  local reply = {...}
  local n = #reply
  for i = 1, #codes do
    if firsts[i] then
      n = n + 1
      reply[n] = firsts[i]
    end
    if seconds[i] then
      n = n + 1
      reply[n] = seconds[i]
    end
  end
  return reply
end

-- Waiting, and until when to be patient. The first in line looks when the next entry can expire. Whoever is behind it
-- looks when the first has expired, which then did not look: so a dead holder, and a dead process with a holder and
-- waiters, are both noticed without anybody polling.
local function answer_waiting(line, i, id, ahead)
  if line.fault then return answer(i, 'x', line.fault, line.detail) end
  line.first = line.first or line.waiting == 1 and id or call('ZRANGE', line.queue, 0, 0)[1]
  if line.first ~= id then
    return answer(i, 'q', ahead, math.max(tonumber(call('ZSCORE', line.expiries, line.first) or now) - now, 0))
  end
  if line.stranger then return answer(i, 's', ahead, line.stranger) end
  local next_expiry = line.sole and line.entry.expiry or call('ZRANGE', line.expiries, 0, 0, 'WITHSCORES')[2]
  return answer(i, 'w', ahead, math.max(tonumber(next_expiry or now) - now, 0))
end

-- False: it may not be renewed. What is to outlive its owner is not cut short by a renewal from before that comes late.
local function prolong(entry, ttl, outlives)
  if entry.flag ~= 'a' and entry.flag ~= 'o' then return false end
  entry.expiry = math.max(now + ttl, entry.flag == 'o' and not outlives and entry.expiry or 0)
  entry.ttl = ttl
  if outlives then entry.flag = 'o' end
  return true
end

-- Renew an entry that may or may not be there.
local function renew(line, i, id, ttl, outlives)
  if line.sole == id then
    if not prolong(line.entry, ttl, outlives) then return answer(i, 'e') end
    line.rewrite = true
    return answer(i, 'H', line.entry.token)
  end
  local value, since
  if line.exists then value, since = find(line, id) end
  if not value then return answer(i, 'u') end
  local entry = parse_value(value)
  if not prolong(entry, ttl, outlives) then return answer(i, 'e') end
  store(line, id, entry)
  if not since then
    waiter = entry.client
    return answer_waiting(line, i, id, '')
  end
  line.reach = math.max(line.reach, entry.expiry)
  return answer(i, 'H', entry.token)
end
