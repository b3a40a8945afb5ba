-- Which lines, and which entries, a call is about; not a script of its own. Included by each script that may have to
-- open a line (line.lua).
--
-- KEYS                 in Cluster, where every key has to be declared: server key, entries, queue and expiries of each
--                      line, behind what else the script wants
-- ARGV  1              elsewhere: the server key of each line, separated by NUL, which no key contains. In Cluster:
--                      nothing
--       2              the id of each entry, separated by spaces; for a script that is about a line and no entry,
--                      anything
--       3              how many there are
--
-- Few and long arguments instead of many short ones: each costs the client about as much as a small command.

-- A token, or a time, as text. Lua itself would write 1.8e+15, and '%.0f' takes longer.
local function digits(n)
  return string.format('%d%09d', n / 1e9, n % 1e9)
end

local server_keys, ids, count, clustered = {}, {}, tonumber(ARGV[3]), ARGV[1] == ''
local n = 0
for id in string.gmatch(ARGV[2], '%S+') do
  n = n + 1
  ids[n] = id
end
n = 0
for server_key in string.gmatch(ARGV[1], '[^%z]+') do
  n = n + 1
  server_keys[n] = server_key
end
if clustered then for i = 1, count do server_keys[i] = KEYS[#KEYS + 4 * (i - count) - 3] end end

-- The name of the hash of entries of the i-th line.
local function entries_of(i)
  return clustered and KEYS[#KEYS + 4 * (i - count) - 2] or 'hf1:entries:{' .. server_keys[i] .. '}'
end
