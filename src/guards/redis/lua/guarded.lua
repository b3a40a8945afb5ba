-- Look at the marks of a resource and do what is asked, in one step; or forget the marks. For holdfast/guards/redis;
-- the rule is that of src/guards/marks.ts.
--
-- KEYS   1: the marks, a hash of format, seen and written. 2 and on: the key of each command.
-- ARGV   1: read, write or reset. 2: the token. Then, for each command: how many words it has besides its key, and
--        those words, its name first.
-- Answer { 'ok', reply, ... }, { 'stale', the mark that is higher }, { 'newer' }; for reset { 'ok', 1 or 0 }.
--
-- Tokens are compared as text, because a number of Lua holds 53 bits: the longer one is the higher one.
local access, token = ARGV[1], ARGV[2]
local function lower(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
local marks = redis.call('HMGET', KEYS[1], 'format', 'seen', 'written')
local seen, written = marks[2] or '0', marks[3] or '0'
if access == 'reset' then
  if marks[2] ~= token then return { 'ok', 0 } end
  return { 'ok', redis.call('DEL', KEYS[1]) }
end
if marks[1] and marks[1] ~= '1' then return { 'newer' } end
local lowest = access == 'write' and seen or written
if lower(token, lowest) then return { 'stale', lowest } end
if lower(seen, token) then seen = token end
if access == 'write' then written = token end
if seen ~= marks[2] or written ~= marks[3] then
  redis.call('HSET', KEYS[1], 'format', '1', 'seen', seen, 'written', written)
end
local replies = { 'ok' }
local at = 3
for index = 2, #KEYS do
  local words = tonumber(ARGV[at])
  replies[index] = redis.call(ARGV[at + 1], KEYS[index], unpack(ARGV, at + 2, at + words))
  at = at + words + 1
end
return replies
