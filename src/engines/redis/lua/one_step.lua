-- The usual steps of hold.lua, by a short way; not a script of its own. That is one step alone, about one item, which
-- reserves what is there for all, or confirms what is held. Where anything is not as usual, nothing is changed here,
-- and the rest of hold.lua goes through all of the rule. `now`, `call` and `digits` are defined there.
local function one_step()
  local verb, ms = string.match(ARGV[2], '^1 (%a+) (%d+) 0 0$')
  if verb ~= 'reserve' and verb ~= 'confirm' then return nil end
  local pool, holds, lapses, forgets, id = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[3]
  if not pool then
    local suffix = ':{' .. ARGV[1] .. '}'
    pool, holds = 'hf1:pool' .. suffix, 'hf1:holds' .. suffix
    lapses, forgets = 'hf1:lapses' .. suffix, 'hf1:forgets' .. suffix
  end

  if verb == 'reserve' then
    local lines = ARGV[4]
    local name, quantity = string.match(lines, '^([^\n]+)\n(%d+)$')
    if not name or call('ZRANGEBYSCORE', lapses, '-inf', now, 'LIMIT', 0, 1)[1] then return nil end
    -- One call of four looks for what is to be forgotten. If there is something, the long way forgets up to ten.
    if now % 4 == 0 and call('ZRANGEBYSCORE', forgets, '-inf', now, 'LIMIT', 0, 1)[1] then return nil end
    local item = call('HGET', pool, name)
    -- It is wanted by none.
    local stock, sold, held = string.match(item or '', '^(%-?%d+) (%-?%d+) (%-?%d+) 0 $')
    if not stock or stock - sold - held < tonumber(quantity) then return nil end
    local at = digits(now + ms)
    if call('HSETNX', holds, id, 'h ' .. at .. ' ' .. lines) == 0 then return nil end
    call('ZADD', lapses, at, id)
    call('HSET', pool, name, stock .. ' ' .. sold .. ' ' .. digits(held + quantity) .. ' 0 ')
    return 'held\t' .. lines .. '\t' .. ms
  end

  local at, lines = string.match(call('HGET', holds, id) or '', '^h (%d+) (.*)$')
  local name, quantity = string.match(lines or '', '^([^\n]+)\n(%d+)$')
  if not name or tonumber(at) <= now then return nil end
  local stock, sold, held, wanted = string.match(call('HGET', pool, name), '^(%-?%d+) (%-?%d+) (%-?%d+) (.*)$')
  local forget_at = digits(now + ms)
  call('HSET', holds, id, 's ' .. forget_at .. ' ' .. lines)
  call('ZREM', lapses, id)
  call('ZADD', forgets, forget_at, id)
  call('HSET', pool, name, stock .. ' ' .. digits(sold + quantity) .. ' ' .. digits(held - quantity) .. ' ' .. wanted)
  return 'sold\t' .. lines
end
