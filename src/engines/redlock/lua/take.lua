-- Take keys, or renew them, in the order of the requests.
--
-- KEYS                 none: outside Cluster they need not be declared
-- ARGV  1              the key of each request, separated by NUL
--       2              for each: "<id> <attempt> <group>", separated by spaces. The group says which counter a key has
--       3              how many there are
--       4              the engine id
--       5              which template each request has, if there are several: '!' for the first, '"' for the second,
--                      and so on; else nothing
--       ..             for each template: its ttl (ms); its mode: 't' tries, 'w' waits, 'r' renews, 'o' renews what is
--                      to outlive its process; the holder
-- Answer               for each request one word, separated by spaces:
--                      the number, if the entry has the key
--                      t:<by>:<stranger>:<ahead>:<next>:<recheck (ms)>, another entry has it
--                      u:<now (ms)>, the server does not know the entry; e, it was evicted
--                      f, the line is full; x:<kind>:<detail>, what is stored is not a lock that could be waited for
--
-- An entry that has the key already, from an earlier attempt whose answer was lost, has it for the whole ttl again
-- before it counts.
--
-- An entry that is to outlive its process may be given less time than it had: the first waiter is told, since it waits
-- for the time before.
--
-- The counter goes up by one for each key that is taken. Where there is none, its first number is what it begins at.
if ARGV[3] == '1' and (ARGV[7] == 't' or ARGV[7] == 'w') then
  -- The least that can be done for one key that is free. Nothing below is needed.
  local key = string.sub(ARGV[1], 1, -2)
  if redis.call('EXISTS', key, 'hf1:redlock:evicted') == 0 then
    local id, attempt, group = string.match(ARGV[2], '(%S+) (%S+) (%S+)')
    local number = redis.call('HINCRBY', 'hf1:counters', group, 1)
    if number > 1 then
      number = string.format('%.0f', number)
      local ttl, engine_id, holder = ARGV[6], ARGV[4], ARGV[8]
      local value = id .. ':' .. number .. ' ' .. attempt .. ' a ' .. ttl .. ' ' .. engine_id .. ' ' .. holder
      redis.call('SET', key, 'hfr1:' .. value, 'PX', ttl)
      return number
    end
    redis.call('HDEL', 'hf1:counters', group)
  end
end

--#include common
local keys, ids, attempts, groups, count = {}, {}, {}, {}, 0
for key in string.gmatch(ARGV[1], '[^%z]+') do
  count = count + 1
  keys[count] = key
end
local n = 0
for id, attempt, group in string.gmatch(ARGV[2], '(%S+) (%S+) (%S+)') do
  n = n + 1
  ids[n], attempts[n], groups[n] = id, attempt, group
end
local engine_id, template_of = ARGV[4], ARGV[5] ~= '' and ARGV[5]
local values = call('MGET', unpack(keys))
local evictions = call('EXISTS', 'hf1:redlock:evicted') == 1

local function is_evicted(id)
  return evictions and tonumber(call('HGET', 'hf1:redlock:evicted', id) or 0) > now()
end

local function next_number(group)
  local number = call('HINCRBY', 'hf1:counters', group, 1)
  if number > 1 then return digits(number) end
  call('HDEL', 'hf1:counters', group)
  return counted_to(group)
end

-- The entry has the key.
local function renew(i, ttl, mode, number, attempt, flag, rest)
  if flag == 'e' then return 'e' end
  local key = keys[i]
  local shorter = (flag == 'o' or mode == 'o') and call('PTTL', key) > tonumber(ttl)
  -- A renewal from before that comes late does not cut short what is to outlive its process.
  if shorter and mode ~= 'o' then return number end
  if mode == 'o' then flag = 'o' end
  if tonumber(attempts[i]) > tonumber(attempt) then attempt = attempts[i] end
  local value = value_of(ids[i], number, attempt, flag, ttl, rest)
  if value == values[i] then call('PEXPIRE', key, ttl) else call('SET', key, value, 'PX', ttl) end
  if shorter then signal_first(key) end
  return number
end

-- Another entry, or a stranger, has the key.
local function refuse(i, value, ttl, mode, holder)
  local key, id = keys[i], ids[i]
  local by, left = string.match(value, '^hfr1:([^:]*):'), call('PTTL', key)
  local version = string.match(value, '^hfr(%d+):')
  if version and version ~= '1' then return 'x:version:' .. version end
  if not by and left < 0 then return 'x:forever:string' end
  local ahead = 1 + call('ZCARD', queue_of(key))
  if mode == 'w' then
    if ahead >= 10000 and not call('ZSCORE', queue_of(key), id) then return 'f' end
    stand_in_line(key, id, ttl, engine_id, holder)
  elseif mode ~= 't' then
    local own_engine_id, own_holder = string.match(call('HGET', waiters_of(key), id), '^%d+ %d+ (%S*) (.*)$')
    stand_in_line(key, id, ttl, own_engine_id, own_holder)
  end
  if mode ~= 't' then ahead = 1 + call('ZRANK', queue_of(key), id) end
  local first, record = first_waiter(key)
  local recheck = left
  if first and first ~= id then recheck = string.match(record, '^%d+') - now() end
  local next = (not first or first == id) and '1' or '0'
  local holder_name, stranger = by or redis.sha1hex(value), by and '0' or '1'
  return table.concat({'t', holder_name, stranger, ahead, next, digits(math.max(recheck, 0))}, ':')
end

local function take(i)
  local at = template_of and 3 * (string.byte(template_of, i) - 33) + 6 or 6
  local ttl, mode, holder = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local key, id, value = keys[i], ids[i], values[i]
  local number, attempt, flag, _, rest = parse_own(value, id)
  if number then return renew(i, ttl, mode, number, attempt, flag, rest) end
  if is_evicted(id) then return 'e' end
  local renews, record = mode == 'r' or mode == 'o', false
  if renews then
    record = call('HGET', waiters_of(key), id)
    local expiry = record and string.match(record, '^%d+')
    if not expiry or tonumber(expiry) <= now() then return 'u:' .. digits(now()) end
  end
  if value then return refuse(i, value, ttl, mode, holder) end
  rest = record and string.match(record, '^%d+ %d+ (.*)$') or engine_id .. ' ' .. holder
  number = next_number(groups[i])
  if not call('SET', key, value_of(id, number, attempts[i], 'a', ttl, rest), 'NX', 'PX', ttl) then
    return 'x:type:' .. call('TYPE', key).ok
  end
  if record then leave_line(key, id) end
  return number
end

local answers, seen = {}, {}
for i = 1, count do
  -- Two requests of one call may be about one key.
  if seen[keys[i]] then values[i] = call('GET', keys[i]) end
  seen[keys[i]] = true
  answers[i] = take(i)
end
return table.concat(answers, ' ')
