-- Change records, in the order of the changes, each if its conditions are met. Who holds a line is looked at in the
-- same step: no other command comes in between.
--
-- KEYS  1              the counter that versions come from; then, in Cluster, the record key of each change; then as in
--                      keys.lua
-- ARGV  1..3           as in keys.lua; the id is that of the entry which has to hold, or '-'
--       4..            for each change two words, as in record.lua
-- Answer               as in record.lua
local call = redis.call
--#include counter
--#include keys
--#include record

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
for i = 1, count do change(i, 2 * i + 2, ids[i] == '-' or holds[i]) end
return reply
