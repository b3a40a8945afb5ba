-- Change records, in the order of the changes, each if its conditions are met. Who holds a line is looked at in the
-- same step: no other command comes in between.
--
-- KEYS  1              the counter that versions come from; then, in Cluster, the record key of each change; then as in
--                      keys.lua
-- ARGV  1..3           as in keys.lua; the id is that of the entry which has to hold, or '-'
--       4, 6, ..       for each change: what is asked, in words between spaces: ttl (ms), mark, 'absent', version,
--                      markBelow; '-' for each that is not given
--       5, 7, ..       and what to store behind the mark; 'x' to remove
-- Answer               {the time: seconds, microseconds; and then for each change three words: 's', its version, the
--                      mark that is stored; or the letter of the condition that was not met (h, a, v, m), the value of
--                      the record, or '' if there is none, and in how long it expires (ms), below 0 for never; or '!',
--                      the value, and nothing: it is no record, or a newer one}
--
-- A record is a string at the record key, hf1:record and what keeps it in the slot of its line:
--
--   "hf1=<version> <mark> t<text>"     a value that is well-formed UTF-8
--   "hf1=<version> <mark> b<base64>"   any other
--   "hf1=<version> 0 x"                a removal that is remembered for a day, because the line was not empty
local call = redis.call
--#include counter
--#include keys

local function record_of(i)
  return clustered and KEYS[i + 1] or 'hf1:record:{' .. server_keys[i] .. '}'
end

-- Whether each of these entries holds. Their lines are opened: there others wait, or hold as well, or nothing is.
local function look_closer(indices, holds)
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  --#include entry
  --#include line
  for _, i in ipairs(indices) do
    local line, id = open(i), ids[i]
    local value, since
    if line.has_hash then value, since = find(line, id) end
    holds[i] = line.sole_id == id or value and since and parse_value(value).flag ~= 'x'
  end
  finish()
end

-- The usual holder holds alone, and is at the server key.
local holds, unclear = {}, {}
for i = 1, count do
  local id = ids[i]
  if id ~= '-' then
    local value = redis.pcall('GET', server_keys[i])
    local form = type(value) == 'string' and string.sub(value, 1, 4)
    if (form == 'hf1:' or form == 'hf1+') and string.sub(value, 5, #id + 5) == id .. ':' then
      holds[i] = true
    elseif value then
      unclear[#unclear + 1] = i
    elseif call('EXISTS', entries_of(i)) > 0 then
      unclear[#unclear + 1] = i
    end
  end
end
if #unclear > 0 then look_closer(unclear, holds) end

local reply = {time[1], time[2]}
local function answer(code, first, second)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = code, first, second
end

for i = 1, count do
  local record, content = record_of(i), ARGV[2 * i + 3]
  local ttl, mark, absent, version, mark_below = string.match(ARGV[2 * i + 2], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  local value = redis.pcall('GET', record)
  local old_version, old_mark, kind = '0', '0', 'x'
  if type(value) == 'string' then
    old_version, old_mark, kind = string.match(value, '^hf1=(%d+) (%d+) (%a)')
  elseif value then
    value, old_version = '!', nil
  end
  local refused = ids[i] ~= '-' and not holds[i] and 'h'
    or absent ~= '-' and kind ~= 'x' and 'a'
    or version ~= '-' and old_version ~= version and 'v'
    or mark_below ~= '-' and tonumber(old_mark or 0) >= tonumber(mark_below) and 'm'
  if not old_version then
    answer('!', value, -1)
  elseif refused then
    answer(refused, value or '', value and call('PTTL', record) or -1)
  else
    local new_version, new_mark = digits(base + i - 1), '0'
    if content == 'x' then
      if call('EXISTS', server_keys[i], entries_of(i)) == 0 then
        call('DEL', record)
      else
        call('SET', record, 'hf1=' .. new_version .. ' 0 x', 'PX', 86400000)
      end
    else
      new_mark = mark ~= '-' and tonumber(mark) > tonumber(old_mark) and mark or old_mark
      local new_value = 'hf1=' .. new_version .. ' ' .. new_mark .. ' ' .. content
      if ttl == '-' then call('SET', record, new_value) else call('SET', record, new_value, 'PX', ttl) end
    end
    answer('s', new_version, new_mark)
  end
end
return reply
