/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

import type { Script } from '../../clients/redis/script-caller.ts'

const common =
  "local call = redis.call\nlocal function digits(n)\nreturn string.format('%.0f', n)\nend\nlocal clock\nlocal function now()\nif not clock then\nlocal time = call('TIME')\nclock = time[1] * 1000 + math.floor(time[2] / 1000)\nend\nreturn clock\nend\nlocal function counted_to(group)\nlocal count = call('HGET', 'hf1:counters', group)\nif count then return count end\nlocal time = call('TIME')\nlocal seed = time[1] .. string.format('%06d', time[2])\ncall('HSET', 'hf1:counters', group, seed)\nreturn seed\nend\nlocal function parse_own(value, id)\nif not value or string.sub(value, 1, #id + 6) ~= 'hfr1:' .. id .. ':' then return nil end\nreturn string.match(value, '^(%d+) (%d+) (%a) (%d+) (.*)$', #id + 7)\nend\nlocal function value_of(id, number, attempt, flag, ttl, rest)\nreturn 'hfr1:' .. id .. ':' .. number .. ' ' .. attempt .. ' ' .. flag .. ' ' .. ttl .. ' ' .. rest\nend\nlocal function queue_of(key)\nreturn 'hf1:redlock:queue:{' .. key .. '}'\nend\nlocal function waiters_of(key)\nreturn 'hf1:redlock:waiters:{' .. key .. '}'\nend\nlocal function leave_line(key, id)\nif call('ZREM', queue_of(key), id) == 0 then return false end\ncall('HDEL', waiters_of(key), id)\nreturn true\nend\nlocal function first_waiter(key)\nwhile true do\nlocal id = call('ZRANGE', queue_of(key), 0, 0)[1]\nif not id then return nil end\nlocal record = call('HGET', waiters_of(key), id)\nlocal expiry = record and string.match(record, '^%d+')\nif expiry and tonumber(expiry) > now() then return id, record end\nleave_line(key, id)\nend\nend\nlocal function stand_in_line(key, id, ttl, engine_id, holder, in_front)\nlocal queue, waiters = queue_of(key), waiters_of(key)\ncall('HSET', waiters, id, digits(now() + ttl) .. ' ' .. ttl .. ' ' .. engine_id .. ' ' .. holder)\nif not call('ZSCORE', queue, id) then\nlocal end_of_line = in_front and 0 or -1\nlocal at = call('ZRANGE', queue, end_of_line, end_of_line, 'WITHSCORES')[2]\ncall('ZADD', queue, digits(at and (in_front and at - 1 or math.max(at + 1, now())) or now()), id)\nend\nif call('PTTL', queue) < tonumber(ttl) then\ncall('PEXPIRE', queue, 2 * ttl)\ncall('PEXPIRE', waiters, 2 * ttl)\nend\nend\nlocal function signal_first(key, by)\nlocal id, record = first_waiter(key)\nif id and id ~= by then call('PUBLISH', 'hf1:' .. string.match(record, '^%d+ %d+ (%S*)'), id .. ' ' .. key) end\nend"

export const take: Script = {
  sha: '89dd2437b06af7b169abef7443455b1acad0f139',
  text: [
    "if ARGV[3] == '1' and (ARGV[7] == 't' or ARGV[7] == 'w') then\nlocal key = string.sub(ARGV[1], 1, -2)\nif redis.call('EXISTS', key, 'hf1:redlock:evicted') == 0 then\nlocal id, attempt, group = string.match(ARGV[2], '(%S+) (%S+) (%S+)')\nlocal number = redis.call('HINCRBY', 'hf1:counters', group, 1)\nif number > 1 then\nnumber = string.format('%.0f', number)\nlocal ttl, engine_id, holder = ARGV[6], ARGV[4], ARGV[8]\nlocal value = id .. ':' .. number .. ' ' .. attempt .. ' a ' .. ttl .. ' ' .. engine_id .. ' ' .. holder\nredis.call('SET', key, 'hfr1:' .. value, 'PX', ttl)\nreturn number\nend\nredis.call('HDEL', 'hf1:counters', group)\nend\nend",
    common,
    "local keys, ids, attempts, groups, count = {}, {}, {}, {}, 0\nfor key in string.gmatch(ARGV[1], '[^%z]+') do\ncount = count + 1\nkeys[count] = key\nend\nlocal n = 0\nfor id, attempt, group in string.gmatch(ARGV[2], '(%S+) (%S+) (%S+)') do\nn = n + 1\nids[n], attempts[n], groups[n] = id, attempt, group\nend\nlocal engine_id, template_of = ARGV[4], ARGV[5] ~= '' and ARGV[5]\nlocal values = call('MGET', unpack(keys))\nlocal evictions = call('EXISTS', 'hf1:redlock:evicted') == 1\nlocal function is_evicted(id)\nreturn evictions and tonumber(call('HGET', 'hf1:redlock:evicted', id) or 0) > now()\nend\nlocal function next_number(group)\nlocal number = call('HINCRBY', 'hf1:counters', group, 1)\nif number > 1 then return digits(number) end\ncall('HDEL', 'hf1:counters', group)\nreturn counted_to(group)\nend\nlocal function renew(i, ttl, mode, number, attempt, flag, rest)\nif flag == 'e' then return 'e' end\nlocal key = keys[i]\nlocal shorter = (flag == 'o' or mode == 'o') and call('PTTL', key) > tonumber(ttl)\nif shorter and mode ~= 'o' then return number end\nif mode == 'o' then flag = 'o' end\nif tonumber(attempts[i]) > tonumber(attempt) then attempt = attempts[i] end\nlocal value = value_of(ids[i], number, attempt, flag, ttl, rest)\nif value == values[i] then call('PEXPIRE', key, ttl) else call('SET', key, value, 'PX', ttl) end\nif shorter then signal_first(key) end\nreturn number\nend\nlocal function refuse(i, value, ttl, mode, holder)\nlocal key, id = keys[i], ids[i]\nlocal by, left = string.match(value, '^hfr1:([^:]*):'), call('PTTL', key)\nlocal version = string.match(value, '^hfr(%d+):')\nif version and version ~= '1' then return 'x:version:' .. version end\nif not by and left < 0 then return 'x:forever:string' end\nlocal ahead = 1 + call('ZCARD', queue_of(key))\nif mode == 'w' then\nif ahead >= 10000 and not call('ZSCORE', queue_of(key), id) then return 'f' end\nstand_in_line(key, id, ttl, engine_id, holder)\nelseif mode ~= 't' then\nlocal own_engine_id, own_holder = string.match(call('HGET', waiters_of(key), id), '^%d+ %d+ (%S*) (.*)$')\nstand_in_line(key, id, ttl, own_engine_id, own_holder)\nend\nif mode ~= 't' then ahead = 1 + call('ZRANK', queue_of(key), id) end\nlocal first, record = first_waiter(key)\nlocal recheck = left\nif first and first ~= id then recheck = string.match(record, '^%d+') - now() end\nlocal next = (not first or first == id) and '1' or '0'\nlocal holder_name, stranger = by or redis.sha1hex(value), by and '0' or '1'\nreturn table.concat({'t', holder_name, stranger, ahead, next, digits(math.max(recheck, 0))}, ':')\nend\nlocal function take(i)\nlocal at = template_of and 3 * (string.byte(template_of, i) - 33) + 6 or 6\nlocal ttl, mode, holder = ARGV[at], ARGV[at + 1], ARGV[at + 2]\nlocal key, id, value = keys[i], ids[i], values[i]\nlocal number, attempt, flag, _, rest = parse_own(value, id)\nif number then return renew(i, ttl, mode, number, attempt, flag, rest) end\nif is_evicted(id) then return 'e' end\nlocal renews, record = mode == 'r' or mode == 'o', false\nif renews then\nrecord = call('HGET', waiters_of(key), id)\nlocal expiry = record and string.match(record, '^%d+')\nif not expiry or tonumber(expiry) <= now() then return 'u:' .. digits(now()) end\nend\nif value then return refuse(i, value, ttl, mode, holder) end\nrest = record and string.match(record, '^%d+ %d+ (.*)$') or engine_id .. ' ' .. holder\nnumber = next_number(groups[i])\nif not call('SET', key, value_of(id, number, attempts[i], 'a', ttl, rest), 'NX', 'PX', ttl) then\nreturn 'x:type:' .. call('TYPE', key).ok\nend\nif record then leave_line(key, id) end\nreturn number\nend\nlocal answers, seen = {}, {}\nfor i = 1, count do\nif seen[keys[i]] then values[i] = call('GET', keys[i]) end\nseen[keys[i]] = true\nanswers[i] = take(i)\nend\nreturn table.concat(answers, ' ')",
  ].join('\n'),
  grants: true,
}

export const raise: Script = {
  sha: '2b14783d3a34091331b72e18a9d72479b54bdb17',
  text: [
    common,
    "local answers = {}\nfor at = 1, #ARGV, 4 do\nlocal key, id, to, group = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]\nlocal value = redis.pcall('GET', key)\nlocal number, attempt, flag, ttl, rest = parse_own(type(value) == 'string' and value, id)\nlocal count = number and tonumber(counted_to(group))\nif not number then\nanswers[#answers + 1] = '0'\nelseif count > tonumber(to) then\nanswers[#answers + 1] = digits(count)\nelse\ncall('HSET', 'hf1:counters', group, to)\ncall('SET', key, value_of(id, to, attempt, flag, ttl, rest), 'KEEPTTL')\nanswers[#answers + 1] = to\nend\nend\nreturn table.concat(answers, ' ')",
  ].join('\n'),
  grants: false,
}

export const repair: Script = {
  sha: '5ffc8f76b9f45d785d57328a0db75f39aada7ca7',
  text: [
    common,
    "for at = 2, #ARGV, 10 do\nlocal key, id, attempt, group, token, current, not_after, ttl, flag, holder = unpack(ARGV, at, at + 9)\nlocal done\nif current == '' then\nlocal granted = value_of(id, token, attempt, flag, ttl, ARGV[1] .. ' ' .. holder)\ndone = now() <= tonumber(not_after) and call('SET', key, granted, 'NX', 'PX', ttl)\nif done then leave_line(key, id) end\nelse\nlocal value = redis.pcall('GET', key)\nlocal number, own_attempt, own_flag, own_ttl, rest = parse_own(type(value) == 'string' and value, id)\ndone = number == current\nif done then call('SET', key, value_of(id, token, own_attempt, own_flag, own_ttl, rest), 'KEEPTTL') end\nend\nif done and tonumber(counted_to(group)) < tonumber(token) then call('HSET', 'hf1:counters', group, token) end\nend\nreturn redis.status_reply('OK')",
  ].join('\n'),
  grants: false,
}

export const leave: Script = {
  sha: '7ec5c1b1aeeac5946cb1606d8f7e06209ad21dee',
  text: [
    "if ARGV[3] == '1' then\nlocal key, id = string.sub(ARGV[1], 1, -2), string.sub(ARGV[2], 1, -2)\nif redis.call('EXISTS', 'hf1:redlock:queue:{' .. key .. '}') == 0 then\nlocal value = redis.pcall('GET', key)\nif type(value) == 'string' and string.sub(value, 1, #id + 6) == 'hfr1:' .. id .. ':' then\nredis.call('DEL', key)\nreturn '1'\nend\nreturn '0'\nend\nend",
    common,
    "local keys, queues, count = {}, {}, 0\nfor key in string.gmatch(ARGV[1], '[^%z]+') do\ncount = count + 1\nkeys[count], queues[count] = key, queue_of(key)\nend\nlocal values = call('MGET', unpack(keys))\nlocal any_waiters = call('EXISTS', unpack(queues)) > 0\nlocal answers, i = {}, 0\nfor id in string.gmatch(ARGV[2], '%S+') do\ni = i + 1\nlocal key = keys[i]\nlocal was = parse_own(values[i], id) and call('DEL', key) == 1\nif any_waiters then\nlocal was_first = first_waiter(key) == id\nwas = leave_line(key, id) or was\nif was_first or call('EXISTS', key) == 0 then signal_first(key) end\nend\nanswers[i] = was and '1' or '0'\nend\nreturn table.concat(answers)",
  ].join('\n'),
  grants: false,
}

export const undo: Script = {
  sha: '8883d4eba48d7a039bda8327c1412df9c8910c0b',
  text: [
    common,
    "local answers = {}\nfor at = 2, #ARGV, 5 do\nlocal key, id, up_to, ttl, holder = unpack(ARGV, at, at + 4)\nlocal value = redis.pcall('GET', key)\nlocal number, attempt, _, _, rest = parse_own(type(value) == 'string' and value, id)\nlocal was = number and tonumber(attempt) <= tonumber(up_to)\nif was then call('DEL', key) end\nif ttl ~= '' and not (number and not was) and not call('ZSCORE', queue_of(key), id) then\nlocal own_engine_id, own_holder = string.match(rest or ARGV[1] .. ' ' .. holder, '^(%S*) (.*)$')\nstand_in_line(key, id, ttl, own_engine_id, own_holder, true)\nend\nif was then signal_first(key, id) end\nanswers[#answers + 1] = was and '1' or '0'\nend\nreturn table.concat(answers)",
  ].join('\n'),
  grants: false,
}

export const inspect: Script = {
  sha: '7081168b2f4f5ad87b558e89a911cf1ff4a76919',
  text: [
    common,
    "local key = ARGV[1]\nlocal kind = call('TYPE', key).ok\nlocal reply = {kind, kind == 'string' and call('GET', key) or '', call('PTTL', key)}\nfirst_waiter(key)\nfor _, id in ipairs(call('ZRANGE', queue_of(key), 0, -1)) do\nlocal record = call('HGET', waiters_of(key), id)\nlocal left = record and string.match(record, '^%d+') - now()\nif left and left > 0 then\nlocal n = #reply\nreply[n + 1], reply[n + 2], reply[n + 3] = id, record, left\nend\nend\nreturn reply",
  ].join('\n'),
  grants: false,
}

export const evict: Script = {
  sha: '93ec39c1e5840e1f43511f4df8973137c9ac5243',
  text: [
    common,
    "local key, id, how = ARGV[1], ARGV[2], ARGV[3]\nlocal value = redis.pcall('GET', key)\nlocal number, attempt, _, ttl, rest = parse_own(type(value) == 'string' and value, id)\nif not number then return 0 end\nif how == 'expire' then\ncall('SET', key, value_of(id, number, attempt, 'e', ttl, rest), 'KEEPTTL')\nelse\nlocal left = math.max(call('PTTL', key), 1)\ncall('DEL', key)\nlocal known = call('HGETALL', 'hf1:redlock:evicted')\nfor at = 1, #known, 2 do\nif tonumber(known[at + 1]) <= now() then call('HDEL', 'hf1:redlock:evicted', known[at]) end\nend\ncall('HSET', 'hf1:redlock:evicted', id, digits(now() + left))\nif call('PTTL', 'hf1:redlock:evicted') < left then call('PEXPIRE', 'hf1:redlock:evicted', left) end\nsignal_first(key)\nend\ncall('PUBLISH', 'hf1:' .. string.match(rest, '^%S*'), id .. ' ' .. key)\nreturn 1",
  ].join('\n'),
  grants: false,
}
