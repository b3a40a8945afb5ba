-- Steps on pools: stock of which parts are held for a while. The rule is core/pool-rule.ts, and this is the
-- same in Lua, step by step, under the same names.
--
-- KEYS                 in Cluster: the four keys of each pool
-- ARGV  1              elsewhere: the server key of each pool, separated by NUL. In Cluster: nothing
--       2, 5, ..       for each step, in words between spaces: the number of its pool, verb, ms, wantMs, flag (0 or 1)
--       3, 6, ..       its id
--       4, 7, ..       its lines: item and quantity by turns, separated by line feeds
-- Answer               for each step up to four words, separated by tabs: the state, a text, and two numbers; see
--                      engines/shared/pool-codec.ts
--
-- A pool is four keys:
--
--   hf1:pool             hash: of each item "<stock> <sold> <held> <wanted until> <wanted by>"
--   hf1:holds            hash: of each id "<h, s or c> <at> <lines>": held, sold, or a change of the stock
--   hf1:lapses           sorted set: ids that are held, by when they lapse
--   hf1:forgets          sorted set: all other ids, by when they are forgotten
--
-- Times are milliseconds since 1970. Items are read once for a call and written at its end: the steps of a batch are
-- mostly about the same few.
local call = redis.call
local TAKEN_BACK_AT_ONCE, FORGOTTEN_AT_ONCE, LONGEST_WANT_MS = 100, 10, 60000
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function digits(n)
  return string.format('%.0f', n)
end

--#include one_step
if #ARGV == 4 then
  local usual = one_step()
  if usual then return {usual} end
end

local server_keys = {}
for server_key in string.gmatch(ARGV[1], '[^%z]+') do server_keys[#server_keys + 1] = server_key end

-- ---- the rows of a pool ----

local pools = {}

local function item_of(pool, name)
  local item = pool.items[name]
  if item == nil then
    local value = call('HGET', pool.key, name)
    item = false
    if value then
      local stock, sold, held, wanted_until, wanted_by =
        string.match(value, '^(%-?%d+) (%-?%d+) (%-?%d+) (%d+) (.*)$')
      item = {
        stock = tonumber(stock), sold = tonumber(sold), held = tonumber(held),
        wanted_until = tonumber(wanted_until), wanted_by = wanted_by,
      }
    end
    pool.items[name] = item
  end
  return item
end

local function hold_of(pool, id)
  local value = call('HGET', pool.holds, id)
  if not value then return nil end
  local state, at, lines = string.match(value, '^(%a) (%d+) (.*)$')
  return {state = state, at = tonumber(at), lines = lines}
end

local function save_hold(pool, id, state, at, lines, before)
  call('HSET', pool.holds, id, state .. ' ' .. digits(at) .. ' ' .. lines)
  if before and before.state ~= state then call('ZREM', before.state == 'h' and pool.lapses or pool.forgets, id) end
  call('ZADD', state == 'h' and pool.lapses or pool.forgets, digits(at), id)
end

local function each_line(lines)
  return string.gmatch(lines, '([^\n]+)\n(%-?%d+)')
end

-- Its units are there again.
local function give_back(pool, lines)
  for name, quantity in each_line(lines) do
    local item = item_of(pool, name)
    item.held, item.changed = item.held - quantity, true
  end
end

local function remove_hold(pool, id, hold)
  call('HDEL', pool.holds, id)
  call('ZREM', hold.state == 'h' and pool.lapses or pool.forgets, id)
  if hold.state == 'h' then give_back(pool, hold.lines) end
end

-- Take back some holds that have lapsed. `now` is fixed for the call: once none is left, none appears.
local function take_back(pool)
  if not pool.more then return false end
  local ids = call('ZRANGEBYSCORE', pool.lapses, '-inf', digits(now), 'LIMIT', 0, TAKEN_BACK_AT_ONCE)
  pool.more = #ids == TAKEN_BACK_AT_ONCE
  if #ids > 0 then
    for _, value in ipairs(call('HMGET', pool.holds, unpack(ids))) do
      if value then give_back(pool, string.match(value, '^%a %d+ (.*)$')) end
    end
    call('HDEL', pool.holds, unpack(ids))
    call('ZREM', pool.lapses, unpack(ids))
  end
  return pool.more
end

-- Once for all steps of a call: more than they can remember.
local function forget(pool)
  local most = FORGOTTEN_AT_ONCE * (#ARGV - 1) / 3
  local ids = call('ZRANGEBYSCORE', pool.forgets, '-inf', digits(now), 'LIMIT', 0, digits(most))
  if #ids == 0 then return end
  call('HDEL', pool.holds, unpack(ids))
  call('ZREM', pool.forgets, unpack(ids))
end

local function open(number)
  local pool = pools[number]
  if pool then return pool end
  local at, name = 4 * number, server_keys[number]
  if name then
    local suffix = ':{' .. name .. '}'
    pool = {
      key = 'hf1:pool' .. suffix, holds = 'hf1:holds' .. suffix,
      lapses = 'hf1:lapses' .. suffix, forgets = 'hf1:forgets' .. suffix,
    }
  else
    pool = {key = KEYS[at - 3], holds = KEYS[at - 2], lapses = KEYS[at - 1], forgets = KEYS[at]}
  end
  pool.items, pool.more = {}, true
  pools[number] = pool
  forget(pool)
  return pool
end

local function next_ms(pool)
  local first = call('ZRANGE', pool.lapses, 0, 0, 'WITHSCORES')
  return first[2] and digits(math.max(0, first[2] - now)) or '-1'
end

-- ---- the rule ----

local reply = {}
local function answer(...)
  reply[#reply + 1] = table.concat({...}, '\t')
end

local function standing(hold)
  if hold and hold.state == 's' then return answer('sold', hold.lines) end
  if hold and hold.state == 'h' then return answer('held', hold.lines, digits(hold.at - now)) end
  return answer('gone')
end

local function is_wanted(item, except_by)
  local wanted_for = item.wanted_until - now
  return item.wanted_by ~= '' and item.wanted_by ~= except_by and wanted_for > 0 and wanted_for <= LONGEST_WANT_MS
end

local function any_wanted(pool, lines)
  for name in each_line(lines) do
    local item = item_of(pool, name)
    if item and is_wanted(item, '') then return '1' end
  end
  return '0'
end

-- Answers, and returns true, if a line lacks when all that could help was taken back.
local function lacking(pool, lines, may_be_new, lacks)
  local more = take_back(pool)
  while true do
    local short, unknown
    for name, quantity in each_line(lines) do
      local item = item_of(pool, name)
      if not item and not may_be_new then
        unknown = name
        break
      end
      if lacks(item or {stock = 0, sold = 0, held = 0}, tonumber(quantity)) then
        short = name
        break
      end
    end
    if unknown then
      answer('unknown', unknown)
      return true
    end
    if not short then return false end
    if not more then
      answer('short', short, next_ms(pool))
      return true
    end
    more = take_back(pool)
  end
end

local function lacks_units(item, quantity)
  return item.stock - item.sold - item.held < quantity
end

local verbs = {}

function verbs.reserve(pool, known, id, lines, ms, want_ms)
  if known and known.lines ~= lines then return answer('differs', known.lines) end
  if known then return standing(known) end
  local is_first = want_ms > 0
  local refused = lacking(pool, lines, false, function(item, quantity)
    return lacks_units(item, quantity) or not is_first and is_wanted(item, id)
  end)
  for name, quantity in each_line(lines) do
    local item = item_of(pool, name)
    if not refused then
      item.held, item.changed = item.held + quantity, true
      if is_first or item.wanted_by == id then item.wanted_by, item.wanted_until = '', 0 end
    elseif is_first and item then
      item.wanted_by, item.wanted_until, item.changed = id, now + want_ms, true
    end
  end
  if refused then return end
  save_hold(pool, id, 'h', now + ms, lines)
  answer('held', lines, digits(ms))
end

function verbs.extend(pool, known, id, lines, ms)
  if known and known.state == 'h' and known.at < now + ms then
    known.at = now + ms
    save_hold(pool, id, 'h', known.at, known.lines)
  end
  standing(known)
end

function verbs.confirm(pool, known, id, lines, ms, want_ms, late)
  if known and known.state == 's' then return standing(known) end
  if not known then
    if not late then return answer('gone') end
    if lacking(pool, lines, false, lacks_units) then
      reply[#reply] = 'gone'
      return
    end
  end
  local sold_lines = known and known.lines or lines
  for name, quantity in each_line(sold_lines) do
    local item = item_of(pool, name)
    if known then item.held = item.held - quantity end
    item.sold, item.changed = item.sold + quantity, true
  end
  save_hold(pool, id, 's', now + ms, sold_lines, known)
  answer('sold', sold_lines)
end

function verbs.cancel(pool, known, id)
  if not known or known.state ~= 'h' then return standing(known) end
  remove_hold(pool, id, known)
  answer('cancelled', '', any_wanted(pool, known.lines))
end

function verbs.find(_, known)
  standing(known)
end

local function change(is_set)
  return function(pool, known, id, lines, ms, want_ms, force)
    if not known then
      local refused = lacking(pool, lines, true, function(item, quantity)
        local stock = is_set and quantity or item.stock + quantity
        return stock < 0 or not force and stock < item.sold + item.held
      end)
      if refused then return end
      for name, quantity in each_line(lines) do
        local item = item_of(pool, name)
        if not item then
          item = {stock = 0, sold = 0, held = 0, wanted_until = 0, wanted_by = ''}
          pool.items[name] = item
        end
        item.stock, item.changed = is_set and tonumber(quantity) or item.stock + quantity, true
      end
      save_hold(pool, id, 'c', now + ms, lines)
    end
    answer('changed', '', any_wanted(pool, lines))
  end
end
verbs.set, verbs.add = change(true), change(false)

local function unwant(pool, id, lines)
  for name in each_line(lines) do
    local item = item_of(pool, name)
    if item and item.wanted_by == id then item.wanted_by, item.wanted_until, item.changed = '', 0, true end
  end
  answer('gone')
end

local function write_items()
  for _, pool in ipairs(pools) do
    for name, item in pairs(pool.items) do
      if item and item.changed then
        call('HSET', pool.key, name, table.concat(
          {digits(item.stock), digits(item.sold), digits(item.held), digits(item.wanted_until), item.wanted_by}, ' '))
        item.changed = false
      end
    end
  end
end

local function show(pool)
  while take_back(pool) do end
  write_items()
  local rows, words = call('HGETALL', pool.key), {}
  for i = 1, #rows, 2 do
    local stock, sold, held = string.match(rows[i + 1], '^(%-?%d+) (%-?%d+) (%-?%d+)')
    words[#words + 1] = table.concat({rows[i], stock, sold, held}, '\n')
  end
  answer('pool', table.concat(words, '\n'), next_ms(pool), call('ZCARD', pool.lapses))
end

for i = 2, #ARGV, 3 do
  local number, verb, ms, want_ms, flag = string.match(ARGV[i], '^(%d+) (%a+) (%d+) (%d+) (%d)$')
  local id, lines, pool = ARGV[i + 1], ARGV[i + 2], open(tonumber(number))
  if verb == 'show' then
    show(pool)
  elseif verb == 'unwant' then
    unwant(pool, id, lines)
  else
    local known = hold_of(pool, id)
    if known and known.at <= now then
      remove_hold(pool, id, known)
      known = nil
    end
    verbs[verb](pool, known, id, lines, tonumber(ms), tonumber(want_ms), flag == '1')
  end
end
write_items()
return reply
