-- Draw from rate limits, in the order of the draws: each takes from all of its keys, or from none. The rule, and what
-- the numbers mean, is in core/rate.ts. All numbers are whole and below 2^53, so that doubles have them exactly.
--
-- KEYS                 in Cluster: the record key of each part
-- ARGV  1              elsewhere: the server key of each part, separated by NUL. In Cluster: nothing
--       2              the rates that occur, four numbers each: units of a token, units of a step, step (us), capacity
--       3              the draws, in numbers: how many parts, how far ahead (us); and then for each part: cost, and
--                      which of the rates, from 1 on
--       4 to 6         for one draw of more than 0 from one key, at a rate whose step is 1 us: units of a step,
--                      units to take, and how many may be owed
-- Answer               one text, in words: the time (us); and then for each draw: 't' if it was taken, 'r' if not, each
--                      with the debts of its parts behind it; or '!' if a record of it is no rate limit
--
-- The state is the text of a record (see record.lua), "rate1 " and six numbers: time (us), debt, and the rate. Its version
-- comes from the clock alone: no holder ever compares it. It expires when nothing is owed any more.
-- It is made to be quick: a state is parsed by one pattern, its units are compared as text, and numbers become text
-- where they have to.
local call = redis.call
local time = call('TIME')
local microseconds = time[2]
local now_text = time[1] .. (#microseconds == 6 and microseconds or string.sub('00000' .. microseconds, -6))

-- The usual call, by a short way: one draw that is taken, from one key at the rate that it was drawn from before, which
-- counts in microseconds. All else is below. Its version is its time, as it is mostly written below, too.
local step = ARGV[4]
if step then
  local record, rate = KEYS[1] or 'hf1:record:{' .. ARGV[1] .. '}', ARGV[2]
  local value, at, debt, stored_rate = redis.pcall('GET', record)
  if type(value) == 'string' then at, debt, stored_rate = string.match(value, '^hf1=(%d+) 0 trate1 %1 (%d+) (.*)$') end
  local passed = stored_rate == rate and now_text - at or 0
  if passed > 0 then
    debt = debt - passed * step
    local wanted = (debt > 0 and debt or 0) + ARGV[5]
    if wanted <= tonumber(ARGV[6]) then
      local wanted_text = wanted < 1e14 and wanted .. '' or string.format('%.0f', wanted)
      call('SET', record, 'hf1=' .. now_text .. ' 0 trate1 ' .. now_text .. ' ' .. wanted_text .. ' ' .. rate,
        'PX', math.ceil(wanted / step / 1000))
      return now_text .. ' t ' .. wanted_text
    end
  end
end

local match, format, floor, ceil, max = string.match, string.format, math.floor, math.ceil, math.max
local now = tonumber(now_text)

-- Lua itself would write 1.8e+15.
local function digits(n)
  return n < 1e14 and n or format('%.0f', n)
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
  local state, value = {version = 0}, redis.pcall('GET', record)
  if value then
    local version, at, debt, units
    if type(value) == 'string' then version, at, debt, units = match(value, '^hf1=(%d+) %d+ trate1 (%d+) (%d+) (%d+ %d+ %d+) %d+$') end
    if version then
      state = {version = tonumber(version), at = tonumber(at), debt = tonumber(debt), units = units, rate = false}
    else
      -- A removal is remembered with its version.
      version = type(value) == 'string' and match(value, '^hf1=(%d+) %d+ x$')
      state = {version = tonumber(version or 0), strange = not version}
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
    local token, step, us = match(state.units, '(%d+) (%d+) (%d+)')
    debt = max(0, state.debt - max(0, floor((now - state.at) / us)) * step)
    debt = math.min(rate.capacity, ceil(debt / token * rate.token))
  end
  if now < state.at and state.at - now <= 1000000 then at = state.at end
  return debt, at
end

local function take(state, rate, at, debt)
  state.at, state.debt, state.units, state.rate = at, debt, rate.units, rate
end

local reply, n, place = {now_text}, 1, 0
local next_number = string.gmatch(ARGV[3], '%d+')
for count in next_number do
  local book = next_number()
  if count == '1' then
    local cost, rate = tonumber(next_number()), rates[tonumber(next_number())]
    place = place + 1
    local state = states[records[place]] or read(records[place])
    if state.strange then
      n = n + 1
      reply[n] = '!'
    else
      local debt, at = drained(state, rate)
      local wanted = debt + cost * rate.token
      if wanted > rate.capacity + floor(book / rate.us) * rate.step then
        reply[n + 1], reply[n + 2] = 'r', digits(debt)
      else
        if cost > 0 then take(state, rate, at, wanted) end
        reply[n + 1], reply[n + 2] = 't', digits(wanted)
      end
      n = n + 2
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
    n = n + 1
    reply[n] = taken
    for _, part in ipairs(taken == '!' and {} or parts) do
      if taken == 't' and part.cost > 0 then take(part.state, part.rate, part.at, part.wanted) end
      n = n + 1
      reply[n] = digits(taken == 't' and part.wanted or part.debt)
    end
  end
end

for record, state in pairs(states) do
  local rate = state.rate
  if rate then
    local version = state.version < now and now_text or format('%.0f', state.version + 1)
    local at = state.at == now and now_text or format('%.0f', state.at)
    local value = 'hf1=' .. version .. ' 0 trate1 ' .. at .. ' ' .. digits(state.debt) .. ' ' .. rate.text
    call('SET', record, value, 'PX', ceil(ceil(state.debt / rate.step) * rate.us / 1000))
  end
end
return table.concat(reply, ' ')
