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
local call = redis.call
local time = call('TIME')
local now = time[1] * 1e6 + time[2]

-- Lua itself would write 1.8e+15.
local function digits(n)
  return string.format('%.0f', n)
end

local records = KEYS
if ARGV[1] ~= '' then
  records = {}
  for server_key in string.gmatch(ARGV[1], '[^%z]+') do records[#records + 1] = 'hf1:record:{' .. server_key .. '}' end
end
local rates = {}
for token, step, us, capacity in string.gmatch(ARGV[2], '(%d+) (%d+) (%d+) (%d+)') do
  rates[#rates + 1] = {
    token = tonumber(token), step = tonumber(step), us = tonumber(us), capacity = tonumber(capacity),
    text = token .. ' ' .. step .. ' ' .. us .. ' ' .. capacity,
  }
end

-- By record: what is stored, and is to be stored. It is read once and written once, whatever draws there are.
local states = {}
local function state_of(record)
  local state = states[record]
  if state then return state end
  state = {}
  local value = redis.pcall('GET', record)
  if value then
    local version, kind, at, debt, token, step, us
    if type(value) == 'string' then
      version, kind = string.match(value, '^hf1=(%d+) %d+ (%a)')
      at, debt, token, step, us = string.match(value, '^hf1=%d+ %d+ trate1 (%d+) (%d+) (%d+) (%d+) (%d+) %d+$')
    end
    state.version = tonumber(version)
    if at then
      state.at, state.debt = tonumber(at), tonumber(debt)
      state.token, state.step, state.us = tonumber(token), tonumber(step), tonumber(us)
    else
      state.strange = kind ~= 'x'
    end
  end
  states[record] = state
  return state
end

-- What is owed now, in units of that rate, and since when.
local function drained(state, rate)
  local at = now - now % rate.us
  if not state.at then return 0, at end
  local debt = math.max(0, state.debt - math.max(0, math.floor((now - state.at) / state.us)) * state.step)
  if state.token ~= rate.token or state.step ~= rate.step or state.us ~= rate.us then
    debt = math.min(rate.capacity, math.ceil(debt / state.token * rate.token))
  end
  if now < state.at and state.at - now <= 1000000 then at = state.at end
  return debt, at
end

local next_number = string.gmatch(ARGV[3], '%d+')
local reply, place = {time[1], time[2]}, 0
for count in next_number do
  local book, parts, taken = tonumber(next_number()), {}, 't'
  for i = 1, tonumber(count) do
    local cost, rate = tonumber(next_number()), rates[tonumber(next_number())]
    place = place + 1
    local state = state_of(records[place])
    if state.strange then taken = '!' end
    if taken ~= '!' then
      local debt, at = drained(state, rate)
      local wanted = debt + cost * rate.token
      if wanted > rate.capacity + math.floor(book / rate.us) * rate.step then taken = 'r' end
      parts[i] = {state = state, rate = rate, cost = cost, at = at, debt = debt, wanted = wanted}
    end
  end
  local answer = {taken}
  if taken ~= '!' then
    for i, part in ipairs(parts) do
      answer[i + 1] = digits(taken == 't' and part.wanted or part.debt)
      if taken == 't' and part.cost > 0 then
        local state, rate = part.state, part.rate
        state.at, state.debt, state.token, state.step, state.us = part.at, part.wanted, rate.token, rate.step, rate.us
        state.rate = rate
      end
    end
  end
  reply[#reply + 1] = table.concat(answer, ' ')
end

for record, state in pairs(states) do
  if state.rate then
    local version = math.max(now, (state.version or 0) + 1)
    local value = 'hf1=' .. digits(version) .. ' 0 trate1 ' .. digits(state.at) .. ' ' .. digits(state.debt) .. ' '
      .. state.rate.text
    local lives = math.max(1, math.ceil(math.ceil(state.debt / state.step) * state.us / 1000))
    call('SET', record, value, 'PX', digits(lives))
  end
end
return reply
