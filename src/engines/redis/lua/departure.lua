-- An entry that leaves its line, whatever else is in it. Included after line.lua; not a script of its own.
--
-- Answers 1 if it was in line, else 0.
local function leave(line, id)
  local first = line.waiting_count > 1 and call('ZRANGE', line.queue, 0, 0)[1]
  if line.sole_id == id then
    release_sole(line)
  else
    local value = line.has_hash and find(line, id)
    if not value or parse_value(value).flag == 'x' then return '0' end
    drop(line, id)
  end
  settle(line)
  if first == id then tell_first_waiter(line) end
  return '1'
end
