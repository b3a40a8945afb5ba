-- Enter lines, in the order of the claims.
--
-- KEYS  1              the counter that tokens come from; then as in keys.lua
-- ARGV  1..3           as in keys.lua
--       4              which template each claim has, if there are several: '!' for the first, '"' for the second, and
--                      so on; else nothing
--       ..             for each template: its ttl (ms); then 'w' if it waits, 't' if it only tries, and the record (see
--                      line.lua) from the flag on
-- Answer               the first token, as a number, if all hold and are new: each has the token of the one before it
--                      plus 1. Else {first token, codes, extras...}; codes has one letter for each claim: h holds, new;
--                      the others as in place.lua
--
-- The usual batch finds every line empty. Then it costs one EXISTS for all of them, and one SET for each.
local call = redis.call
--#include counter

local slow
if more == 0 then
  -- The least that can be done for one claim: nothing below is needed.
  local server_key, entries = ARGV[1], 'hf1:entries:{' .. ARGV[1] .. '}'
  if server_key == '' then server_key, entries = KEYS[2], KEYS[3] end
  local value = 'hf1:' .. ARGV[2] .. ':' .. first_token .. string.sub(ARGV[6], 2)
  if call('EXISTS', entries) == 0 and call('SET', server_key, value, 'NX', 'PX', ARGV[5]) then return base end
  slow = {1}
end

--#include keys
local template_of = ARGV[4] ~= '' and ARGV[4]

-- Where in ARGV the template of the i-th claim is.
local function template_at(i)
  return template_of and 2 * (string.byte(template_of, i) - 33) + 5 or 5
end

if not slow then
  local entries = {}
  for i = 1, count do entries[i] = entries_of(i) end
  local lined, ttl, record = call('EXISTS', unpack(entries)) > 0, ARGV[5], string.sub(ARGV[6], 2)
  for i = 1, count do
    if template_of then
      local at = template_at(i)
      ttl, record = ARGV[at], string.sub(ARGV[at + 1], 2)
    end
    local value = 'hf1:' .. ids[i] .. ':' .. digits(base + i - 1) .. record
    if lined and call('EXISTS', entries[i]) > 0 or not call('SET', server_keys[i], value, 'NX', 'PX', ttl) then
      slow = slow or {}
      slow[#slow + 1] = i
    end
  end
  if not slow then return base end
end

local now = time[1] * 1000 + math.floor(time[2] / 1000)
local codes, firsts, seconds = {}, {}, {}
for i = 1, count do codes[i] = 'h' end
--#include entry
--#include line
--#include place

-- The i-th claim, whose line was not simply empty.
local function enter(i, line, id, ttl, template)
  local waits, record = string.sub(template, 1, 1) == 'w', string.sub(template, 2)
  local weight, limit = string.match(record, '^ %a (%d+) (%d+)')
  weight, limit = tonumber(weight), tonumber(limit)
  if line.sole_id == id or line.has_hash and find(line, id) then return renew(line, i, id, ttl) end
  if line.fault then return answer(i, 'x', line.fault, line.detail) end

  local size = line.held_count + line.waiting_count + (line.stranger and 1 or 0)
  local holds = line.waiting_count == 0 and admits(line, weight, limit)
  if not holds and not waits then return answer(i, 'b', size) end
  if size >= 10000 then return answer(i, 'f') end

  local token = digits(base + i - 1)
  local entry = parse(token .. record)
  entry.expiry = now + ttl
  if holds and line.held_count == 0 then return make_sole(line, id, entry) end
  if holds then
    spread(line)
    hold(line, weight, limit)
    store(line, id, entry, '@' .. id, now)
    line.rewrite_sums, line.latest_expiry = true, math.max(line.latest_expiry, entry.expiry)
  else
    store(line, id, entry)
    call('ZADD', line.queue, token, id)
    line.lacks_expiry, line.tell_watchers = line.lacks_expiry or line.waiting_count == 0, true
    line.waiting_count = line.waiting_count + 1
    answer_waiting(line, i, id, size)
  end
end

for _, i in ipairs(slow) do
  local at = template_at(i)
  enter(i, open(i), ids[i], tonumber(ARGV[at]), ARGV[at + 1])
end
finish()
return answers(first_token, table.concat(codes))
