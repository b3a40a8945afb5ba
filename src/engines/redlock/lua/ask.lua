-- Take keys, or renew them, in the order of the questions.
--
-- KEYS                 none: outside Cluster they need not be declared
-- ARGV  1              the K of each question, separated by NUL
--       2              for each: "<id> <attempt> <group>", separated by spaces. The group says which counter a key has
--       3              how many there are
--       4              the client
--       5              which class each question is of, if there are several: '!' for the first, '"' for the second, and so on; else nothing
--       ..             for each class: its ttl (ms); 't' tries, 'w' waits, 'r' renews, 'o' renews what is to outlive its process; the holder
-- Answer               for each question one word, separated by spaces:
--                      the number, if the key is ours; t:<by>:<stranger>:<ahead>:<next>:<look (ms)>, taken; m:<now (ms)>, missing; e, evicted;
--                      u:<kind>:<detail>, not a lock that anybody could wait for
--
-- A key that is ours already, from an earlier attempt whose answer was lost, lives for the whole ttl again before it
-- counts.
--
-- The counter goes up by one for each key that is taken. Where there is none, its first number is what it begins at.
if ARGV[3] == '1' and (ARGV[7] == 't' or ARGV[7] == 'w') then
  -- The least that can be done for one key that is free. Nothing below is needed.
  local K = string.sub(ARGV[1], 1, -2)
  if redis.call('EXISTS', K, 'hf1:redlock:evicted') == 0 then
    local id, attempt, group = string.match(ARGV[2], '(%S+) (%S+) (%S+)')
    local number = redis.call('HINCRBY', 'hf1:counters', group, 1)
    if number > 1 then
      number = string.format('%.0f', number)
      redis.call('SET', K, 'hfr1:' .. id .. ':' .. number .. ' ' .. attempt .. ' a ' .. ARGV[6] .. ' ' .. ARGV[4] .. ' ' .. ARGV[8], 'PX', ARGV[6])
      return number
    end
    redis.call('HDEL', 'hf1:counters', group)
  end
end

--#include common
local Ks, ids, attempts, groups, count = {}, {}, {}, {}, 0
for K in string.gmatch(ARGV[1], '[^%z]+') do
  count = count + 1
  Ks[count] = K
end
local n = 0
for id, attempt, group in string.gmatch(ARGV[2], '(%S+) (%S+) (%S+)') do
  n = n + 1
  ids[n], attempts[n], groups[n] = id, attempt, group
end
local client, class_of = ARGV[4], ARGV[5] ~= '' and ARGV[5]
local values = call('MGET', unpack(Ks))
local evictions = call('EXISTS', 'hf1:redlock:evicted') == 1

local function evicted(id)
  return evictions and tonumber(call('HGET', 'hf1:redlock:evicted', id) or 0) > now()
end

local function counted(group)
  local number = call('HINCRBY', 'hf1:counters', group, 1)
  if number > 1 then return digits(number) end
  call('HDEL', 'hf1:counters', group)
  return counted_to(group)
end

local function renewed(i, ttl, mode, number, attempt, flag, had, rest)
  if flag == 'e' then return 'e' end
  local K = Ks[i]
  -- A renewal from before that comes late does not cut short what is to outlive its process.
  if flag == 'o' and mode ~= 'o' and call('PTTL', K) > tonumber(ttl) then return number end
  if mode == 'o' then flag = 'o' end
  if tonumber(attempts[i]) > tonumber(attempt) then attempt = attempts[i] end
  local value = value_of(ids[i], number, attempt, flag, ttl, rest)
  if value == values[i] then call('PEXPIRE', K, ttl) else call('SET', K, value, 'PX', ttl) end
  return number
end

local function taken(i, value, ttl, mode, holder)
  local K, id = Ks[i], ids[i]
  local by, left = string.match(value, '^hfr1:([^:]*):'), call('PTTL', K)
  local version = string.match(value, '^hfr(%d+):')
  if version and version ~= '1' then return 'u:version:' .. version end
  if not by and left < 0 then return 'u:forever:string' end
  local ahead = 1 + call('ZCARD', queue_of(K))
  if mode == 'w' then
    if ahead >= 10000 and not call('ZSCORE', queue_of(K), id) then return 'u:full:10000' end
    register(K, id, ttl, client, holder)
  elseif mode ~= 't' then
    local own, name = string.match(call('HGET', waiters_of(K), id), '^%d+ %d+ (%S*) (.*)$')
    register(K, id, ttl, own, name)
  end
  if mode ~= 't' then ahead = 1 + call('ZRANK', queue_of(K), id) end
  local before, record = first(K)
  local look = left
  if before and before ~= id then look = string.match(record, '^%d+') - now() end
  local next = (not before or before == id) and '1' or '0'
  return table.concat({'t', by or redis.sha1hex(value), by and '0' or '1', ahead, next, digits(math.max(look, 0))}, ':')
end

local function ask(i)
  local at = class_of and 3 * (string.byte(class_of, i) - 33) + 6 or 6
  local ttl, mode, holder = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local K, id, value = Ks[i], ids[i], values[i]
  local number, attempt, flag, had, rest = mine(value, id)
  if number then return renewed(i, ttl, mode, number, attempt, flag, had, rest) end
  if evicted(id) then return 'e' end
  local renews, record = mode == 'r' or mode == 'o', false
  if renews then
    record = call('HGET', waiters_of(K), id)
    local expiry = record and string.match(record, '^%d+')
    if not expiry or tonumber(expiry) <= now() then return 'm:' .. digits(now()) end
  end
  if value then return taken(i, value, ttl, mode, holder) end
  local own = record and string.match(record, '^%d+ %d+ (.*)$') or client .. ' ' .. holder
  number = counted(groups[i])
  if not call('SET', K, value_of(id, number, attempts[i], 'a', ttl, own), 'NX', 'PX', ttl) then
    return 'u:type:' .. call('TYPE', K).ok
  end
  if record then unregister(K, id) end
  return number
end

local answers, seen = {}, {}
for i = 1, count do
  -- Two questions of one call may be about one key.
  if seen[Ks[i]] then values[i] = call('GET', Ks[i]) end
  seen[Ks[i]] = true
  answers[i] = ask(i)
end
return table.concat(answers, ' ')
