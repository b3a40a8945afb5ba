-- One change of a record: its conditions, and what is stored. Included after counter.lua and keys.lua; not a script of
-- its own.
--
-- A record is a string at the record key, hf1:record and what keeps it in the slot of its line:
--
--   "hf1=<version> <mark> t<text>"     a value that is well-formed UTF-8
--   "hf1=<version> <mark> b<base64>"   any other
--   "hf1=<version> 0 x"                a removal that is remembered for a day, because the line was not empty
--
-- KEYS  2..            in Cluster: the record key of each change
-- ARGV                 two words for each change. What is asked, in words between spaces: ttl (ms), mark, 'absent',
--                      version, markBelow; '-' for each that is not given. And what to store behind the mark; 'x' to
--                      remove
-- Answer               {the time: seconds, microseconds; and then for each change three words: 's', its version, the
--                      mark that is stored; or the letter of the condition that was not met (h, a, v, m), the value of
--                      the record, or '' if there is none, and in how long it expires (ms), below 0 for never; or '!',
--                      the value, and nothing: it is no record, or a newer one}
local reply = {time[1], time[2]}

local function record_of(i)
  return clustered and KEYS[i + 1] or 'hf1:record:{' .. server_keys[i] .. '}'
end

local function answer_change(i, code, first, second)
  reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = code, first, second
end

-- Make the i-th change, whose words are at `at`, if its conditions are met; `holds` says whether that of the line is.
-- True: it was made.
local function change(i, at, holds)
  local record, content = record_of(i), ARGV[at + 1]
  local ttl, mark, absent, version, mark_below = string.match(ARGV[at], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  local value = redis.pcall('GET', record)
  local old_version, old_mark, kind = '0', '0', 'x'
  if type(value) == 'string' then
    old_version, old_mark, kind = string.match(value, '^hf1=(%d+) (%d+) (%a)')
  elseif value then
    value, old_version = '!', nil
  end
  if not old_version then
    answer_change(i, '!', value, -1)
    return false
  end
  local refused = not holds and 'h'
    or absent ~= '-' and kind ~= 'x' and 'a'
    or version ~= '-' and old_version ~= version and 'v'
    or mark_below ~= '-' and tonumber(old_mark) >= tonumber(mark_below) and 'm'
  if refused then
    answer_change(i, refused, value or '', value and call('PTTL', record) or -1)
    return false
  end
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
  answer_change(i, 's', new_version, new_mark)
  return true
end
