-- Which lines, and which entries, a call is about. Included first by every script but alone.lua; not a script of its own.
--
-- KEYS                 in Cluster, where every key has to be declared: K, entries, queue and expiries of each line, behind what else the script wants
-- ARGV  1              elsewhere: the K of each line, separated by NUL, which no key contains. In Cluster: nothing
--       2              the id of each entry, separated by spaces; for a script that is about a line and no entry, anything
--
-- Few and long arguments instead of many short ones: each costs the client, and the server, about as much as a small command.
local Ks, ids, count, clustered = {}, {}, 0, ARGV[1] == ''
for id in string.gmatch(ARGV[2], '%S+') do
  count = count + 1
  ids[count] = id
end
if clustered then
  for i = 1, count do Ks[i] = KEYS[#KEYS + 4 * (i - count) - 3] end
else
  local i = 0
  for K in string.gmatch(ARGV[1], '[^%z]+') do
    i = i + 1
    Ks[i] = K
  end
end

-- Where the entries of that line are.
local function entries_of(i)
  return clustered and KEYS[#KEYS + 4 * (i - count) - 2] or 'hf1:entries:{' .. Ks[i] .. '}'
end
