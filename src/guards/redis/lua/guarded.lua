-- Look at the marks of a resource and do what is asked, in one step; or forget the marks. For holdfast/guards/redis;
-- the rule is that of src/guards/marks.ts.
--
-- KEYS   1: the marks, a hash of format, seen and written. 2 and on: the key of each command.
-- ARGV   1: read, write or reset. 2: the token. 3: how many milliseconds to keep marks that are not used again, empty
--        for ever. Then, for each command: how many words it has besides its key, and those words, its name first.
-- Answer { 'ok', reply, ... }, { 'stale', the mark that is higher }, { 'newer' }; for reset { 'ok', 1 or 0 }.
--
-- Tokens are compared as text, because a number of Lua holds 53 bits: the longer one is the higher one.
local access, token, forget = ARGV[1], ARGV[2], tonumber(ARGV[3])
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
-- The end of marks is put off, and never brought nearer: those of a guard that keeps them for ever stay.
if forget then
  local left = redis.call('PTTL', KEYS[1])
  if not marks[1] or (left >= 0 and left < forget) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
elseif marks[1] then
  redis.call('PERSIST', KEYS[1])
end
local replies = { 'ok' }
local at = 4
for index = 2, #KEYS do
  local words = tonumber(ARGV[at])
  replies[index] = redis.call(ARGV[at + 1], KEYS[index], unpack(ARGV, at + 2, at + words))
  at = at + words + 1
end
return replies
