-- Read records.
--
-- KEYS                 in Cluster: the record key of each
-- ARGV  1              elsewhere: the server key of each line, separated by NUL. In Cluster: nothing
-- Answer               {the time: seconds, microseconds; and then for each record: its value, or '' if there is none,
--                      and in how long it expires (ms), below 0 for never}. What is no string is '!'.
local call = redis.call
local records = KEYS
if ARGV[1] ~= '' then
  records = {}
  for server_key in string.gmatch(ARGV[1], '[^%z]+') do records[#records + 1] = 'hf1:record:{' .. server_key .. '}' end
end
local reply = call('TIME')
for _, record in ipairs(records) do
  local value, n = redis.pcall('GET', record), #reply
  reply[n + 1] = type(value) == 'table' and '!' or value or ''
  reply[n + 2] = value and call('PTTL', record) or -1
end
return reply
