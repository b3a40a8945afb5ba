-- Draw from rate limits, in the order of the draws: each takes from all of its keys, or from none. The rule, and what
-- the numbers mean, is in core/rate.ts. All numbers are whole and below 2^53, so that doubles have them exactly.
--
-- KEYS                 in Cluster: the record key of each part
-- ARGV  1              elsewhere: the server key of each part, separated by NUL. In Cluster: nothing
--       2              the rates that occur, four numbers each: units of a token, units of a step, step (us), capacity
--       3              the draws, in numbers: how many parts, how far ahead (us); and then for each part: cost, and
--                      which of the rates, from 1 on
-- Answer               {the time: seconds, microseconds; and then for each draw: 't' if it was taken, 'r' if not, each
--                      with the debts of its parts behind spaces; or '!' if a record of it is no rate limit}
--
-- The state is the text of a record (see put.lua), "rate1 " and six numbers: time (us), debt, and the rate. Its version
-- comes from the clock alone: no holder ever compares it. It expires when nothing is owed any more.
-- It is made to be quick: a state is parsed by one pattern, its units are compared as text, and numbers become text
-- where they have to.
local call, floor, max = redis.call, math.floor, math.max
local time = call('TIME')
local now_text = time[1] .. string.format('%06d', time[2])
local now = tonumber(now_text)

-- Lua itself would write 1.8e+15.
local function digits(n)
  return n < 1e14 and n or string.format('%.0f', n)
end

local records = KEYS
if ARGV[1] ~= '' then
  records = {}
  for server_key in string.gmatch(ARGV[1], '[^%z]+') do records[#records + 1] = 'hf1:record:{' .. server_key .. '}' end
end
local rates = {}
for token, step, us, capacity in string.gmatch(ARGV[2], '(%d+) (%d+) (%d+) (%d+)') do
  local units = token .. ' ' .. step .. ' ' .. us
  rates[#rates + 1] = {
    token = tonumber(token), step = tonumber(step), us = tonumber(us), capacity = tonumber(capacity), units = units,
    text = units .. ' ' .. capacity,
  }
end

-- By record: what is stored, and is to be stored. It is read once and written once, whatever draws there are.
local states = {}
local function read(record)
  local state, value = {}, redis.pcall('GET', record)
  if value then
    local version, at, debt, units
    if type(value) == 'string' then
      version, at, debt, units = string.match(value, '^hf1=(%d+) %d+ trate1 (%d+) (%d+) (%d+ %d+ %d+) %d+$')
    end
    if version then
      state.version, state.at, state.debt, state.units = tonumber(version), tonumber(at), tonumber(debt), units
    else
      -- A removal is remembered with its version.
      version = type(value) == 'string' and string.match(value, '^hf1=(%d+) %d+ x$')
      state.version, state.strange = tonumber(version or 0), not version
    end
  end
  states[record] = state
  return state
end

-- What is owed now, in units of that rate, and since when.
local function drained(state, rate)
  local at = rate.us == 1 and now or now - now % rate.us
  if not state.at then return 0, at end
  local debt
  if state.units == rate.units then
    debt = max(0, state.debt - max(0, floor((now - state.at) / rate.us)) * rate.step)
  else
    local token, step, us = string.match(state.units, '(%d+) (%d+) (%d+)')
    debt = max(0, state.debt - max(0, floor((now - state.at) / us)) * step)
    debt = math.min(rate.capacity, math.ceil(debt / token * rate.token))
  end
  if now < state.at and state.at - now <= 1000000 then at = state.at end
  return debt, at
end

local function take(state, rate, at, debt)
  state.at, state.debt, state.units, state.rate = at, debt, rate.units, rate
end

local next_number = string.gmatch(ARGV[3], '%d+')
local reply, place = {time[1], time[2]}, 0
for count in next_number do
  local book = tonumber(next_number())
  if count == '1' then
    local cost, rate = tonumber(next_number()), rates[tonumber(next_number())]
    place = place + 1
    local state = states[records[place]] or read(records[place])
    if state.strange then
      reply[#reply + 1] = '!'
    else
      local debt, at = drained(state, rate)
      local wanted = debt + cost * rate.token
      if wanted > rate.capacity + floor(book / rate.us) * rate.step then
        reply[#reply + 1] = 'r ' .. digits(debt)
      else
        if cost > 0 then take(state, rate, at, wanted) end
        reply[#reply + 1] = 't ' .. digits(wanted)
      end
    end
  else
    local parts, taken = {}, 't'
    for i = 1, tonumber(count) do
      local cost, rate = tonumber(next_number()), rates[tonumber(next_number())]
      place = place + 1
      local state = states[records[place]] or read(records[place])
      if state.strange then taken = '!' end
      local debt, at = drained(state, rate)
      local wanted = debt + cost * rate.token
      if taken == 't' and wanted > rate.capacity + floor(book / rate.us) * rate.step then taken = 'r' end
      parts[i] = {state = state, rate = rate, cost = cost, at = at, debt = debt, wanted = wanted}
    end
    local answer = taken
    for _, part in ipairs(taken == '!' and {} or parts) do
      if taken == 't' and part.cost > 0 then take(part.state, part.rate, part.at, part.wanted) end
      answer = answer .. ' ' .. digits(taken == 't' and part.wanted or part.debt)
    end
    reply[#reply + 1] = answer
  end
end

for record, state in pairs(states) do
  local rate = state.rate
  if rate then
    local version = (state.version or 0) < now and now_text or string.format('%.0f', state.version + 1)
    local at = state.at == now and now_text or string.format('%.0f', state.at)
    local value = 'hf1=' .. version .. ' 0 trate1 ' .. at .. ' ' .. digits(state.debt) .. ' ' .. rate.text
    call('SET', record, value, 'PX', math.ceil(math.ceil(state.debt / rate.step) * rate.us / 1000))
  end
end
return reply
