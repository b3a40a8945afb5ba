-- Enter lines that are free, and change the records beside them: both or neither (`putEntering` of a store).
--
-- KEYS  1              the counter that tokens and versions come from; then, in Cluster, the record key of each change;
--                      then as in keys.lua
-- ARGV  1..3           as in keys.lua
--       4              the ttl of all claims (ms)
--       5              their record (see line.lua), from the flag on
--       6..            for each change two words, as in record.lua
-- Answer               {the time: seconds, microseconds; the first version}, if all are made, and no mark is stored:
--                      each has the version of the one before it plus 1. Else as in record.lua, or with 'x', a fault
--                      and its detail as in place.lua. An entry that was let in has its version as its token
--
-- The usual batch finds every line empty, and no records. Then it costs one EXISTS for all of them, and two SET for
-- each.
local call = redis.call
--#include counter
local ttl, owner = ARGV[4], ARGV[5]

-- For how long what is asked lives, if that is a plain value where nothing is stored. (A removal that is remembered is
-- something, as far as this quick way is concerned.)
local function plain_ttl(at)
  return string.match(ARGV[at], '^(%d+) %- absent %- %-$')
end

if more == 0 then
  -- The least that can be done for one: nothing below is needed.
  local server_key, entries, record = ARGV[1], 'hf1:entries:{' .. ARGV[1] .. '}', 'hf1:record:{' .. ARGV[1] .. '}'
  if server_key == '' then record, server_key, entries = KEYS[2], KEYS[3], KEYS[4] end
  local lives = plain_ttl(6)
  local found = lives and call('EXISTS', entries, record)
  if found == 0 then
    if call('SET', server_key, 'hf1:' .. ARGV[2] .. ':' .. first_token .. owner, 'NX', 'PX', ttl) then
      call('SET', record, 'hf1=' .. first_token .. ' 0 ' .. ARGV[7], 'PX', lives)
      return {time[1], time[2], first_token}
    end
  elseif found == 1 and call('EXISTS', server_key, entries) == 0 then
    -- Nothing but the record: what was done before is told to a caller that comes again.
    local value = redis.pcall('GET', record)
    if type(value) == 'string' and string.find(value, '^hf1=%d+ %d+ [tb]') then
      return {time[1], time[2], 'a', value, call('PTTL', record)}
    end
  end
end

--#include keys
--#include record

-- Most often all ask for the same.
local slow, lives, names = {}, plain_ttl(6), {}
for i = 1, count do
  if lives and ARGV[2 * i + 4] ~= ARGV[6] then lives = false end
  names[2 * i - 1], names[2 * i] = entries_of(i), record_of(i)
end
if more == 0 or not lives then
  for i = 1, count do slow[i] = i end
else
  local lined = call('EXISTS', unpack(names)) > 0
  for i = 1, count do
    local token = digits(base + i - 1)
    if lined and call('EXISTS', names[2 * i - 1], names[2 * i]) > 0
      or not call('SET', server_keys[i], 'hf1:' .. ids[i] .. ':' .. token .. owner, 'NX', 'PX', ttl) then
      slow[#slow + 1] = i
    else
      call('SET', names[2 * i], 'hf1=' .. token .. ' 0 ' .. ARGV[2 * i + 5], 'PX', lives)
    end
  end
  if #slow == 0 then return {time[1], time[2], first_token} end
  for i = 1, count do answer_change(i, 's', digits(base + i - 1), '0') end
end

local now = time[1] * 1000 + math.floor(time[2] / 1000)
--#include entry
--#include line

-- The entry is in the line already: this call has arrived before. What it has stored then is still there.
local function repeated(i)
  local value = redis.pcall('GET', record_of(i))
  local version, mark, content = string.match(type(value) == 'string' and value or '', '^hf1=(%d+) (%d+) (.*)$')
  if content ~= ARGV[2 * i + 5] then return false end
  answer_change(i, 's', version, mark)
  return true
end

local function begin(i, line, id)
  if line.fault then return answer_change(i, 'x', line.fault, line.detail) end
  if line.sole_id == id and line.sole_entry.flag ~= 'e' then
    if change(i, 2 * i + 4, true) or repeated(i) then
      line.sole_entry.expiry, line.rewrite_lock = now + ttl, true
    else
      release_sole(line)
      settle(line)
    end
    return
  end
  if not change(i, 2 * i + 4, line.held_count + line.waiting_count == 0 and not line.stranger) then return end
  local entry = parse(digits(base + i - 1) .. owner)
  entry.expiry = now + ttl
  make_sole(line, id, entry)
end

for _, i in ipairs(slow) do begin(i, open(i), ids[i]) end
finish()
return reply
