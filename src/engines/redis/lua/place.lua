-- A place in line, and what is said of it. Included after line.lua by the scripts that answer where an entry stands;
-- not a script of its own.
--
-- An answer is one letter in `codes`, and what belongs to it in `firsts` and `seconds`, which the script has declared.
-- The letters of all engines are in engines/shared/standing-codes.ts. Here:
--   h               holds, new: only from enter.lua, which gives the first token
--   H token         holds, for the ttl that was asked for
--   w ahead ms      waits, first in line; look again after so long, should nothing be heard until then
--   q ahead ms      the same, with others before it
--   s ahead ms      waits, first in line, for a stranger, who does not tell when it goes; its key expires after so long
--   b ahead         busy
--   u, e            gone: unknown, evicted
--   f               the line is full
--   x fault detail  a key of another type, without expiry, or of a newer version
--
-- The id of the engine of an entry that waits, if this call has met one.
local waiting_engine

local function answer(i, code, first, second)
  codes[i], firsts[i], seconds[i] = code, first, second
end

-- The whole reply: what the script itself has to say, then what belongs to the letters, in their order.
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

-- It waits; and after how long it is to look again, should no message come: none is sent when an entry expires. The
-- first waiter looks when the next entry can expire: so a dead holder is noticed. The others look when the first waiter
-- itself has expired. That one would have renewed itself if it lived: it died with the holder, say, and has not looked.
-- So no waiter polls.
local function answer_waiting(line, i, id, ahead)
  if line.fault then return answer(i, 'x', line.fault, line.detail) end
  line.first_waiter = line.first_waiter or line.waiting_count == 1 and id or call('ZRANGE', line.queue, 0, 0)[1]
  if line.first_waiter ~= id then
    return answer(i, 'q', ahead, math.max(tonumber(call('ZSCORE', line.expiries, line.first_waiter) or now) - now, 0))
  end
  if line.stranger then return answer(i, 's', ahead, line.stranger) end
  local next_expiry = line.sole_id and line.sole_entry.expiry or call('ZRANGE', line.expiries, 0, 0, 'WITHSCORES')[2]
  return answer(i, 'w', ahead, math.max(tonumber(next_expiry or now) - now, 0))
end

-- False: it was evicted, and may not be renewed. An entry that is to outlive its owner is not cut short by an earlier
-- renewal that comes late.
local function prolong(line, entry, ttl, outlives)
  if entry.flag ~= 'a' and entry.flag ~= 'o' then return false end
  local before = entry.expiry
  entry.expiry = math.max(now + ttl, entry.flag == 'o' and not outlives and before or 0)
  entry.ttl = ttl
  if outlives then entry.flag = 'o' end
  if entry.expiry < before then tell_first_waiter(line) end
  return true
end

-- Renew an entry that may or may not be there.
local function renew(line, i, id, ttl, outlives)
  if line.sole_id == id then
    if not prolong(line, line.sole_entry, ttl, outlives) then return answer(i, 'e') end
    line.rewrite_lock = true
    return answer(i, 'H', line.sole_entry.token)
  end
  local value, since
  if line.has_hash then value, since = find(line, id) end
  if not value then return answer(i, 'u') end
  local entry = parse_value(value)
  if not prolong(line, entry, ttl, outlives) then return answer(i, 'e') end
  store(line, id, entry)
  if not since then
    waiting_engine = entry.engine_id
    return answer_waiting(line, i, id, '')
  end
  line.latest_expiry = math.max(line.latest_expiry, entry.expiry)
  return answer(i, 'H', entry.token)
end
