/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

import type { Script } from '../../clients/redis/script-caller.ts'

const common =
  "local call = redis.call\nlocal function digits(n)\nreturn string.format('%.0f', n)\nend\nlocal clock\nlocal function now()\nif not clock then\nlocal time = call('TIME')\nclock = time[1] * 1000 + math.floor(time[2] / 1000)\nend\nreturn clock\nend\nlocal function counted_to(group)\nlocal count = call('HGET', 'hf1:counters', group)\nif count then return count end\nlocal time = call('TIME')\nlocal seed = time[1] .. string.format('%06d', time[2])\ncall('HSET', 'hf1:counters', group, seed)\nreturn seed\nend\nlocal function mine(value, id)\nif not value or string.sub(value, 1, #id + 6) ~= 'hfr1:' .. id .. ':' then return nil end\nreturn string.match(value, '^(%d+) (%d+) (%a) (%d+) (.*)$', #id + 7)\nend\nlocal function value_of(id, number, attempt, flag, ttl, rest)\nreturn 'hfr1:' .. id .. ':' .. number .. ' ' .. attempt .. ' ' .. flag .. ' ' .. ttl .. ' ' .. rest\nend\nlocal function queue_of(K)\nreturn 'hf1:redlock:queue:{' .. K .. '}'\nend\nlocal function waiters_of(K)\nreturn 'hf1:redlock:waiters:{' .. K .. '}'\nend\nlocal function unregister(K, id)\nif call('ZREM', queue_of(K), id) == 0 then return false end\ncall('HDEL', waiters_of(K), id)\nreturn true\nend\nlocal function first(K)\nwhile true do\nlocal id = call('ZRANGE', queue_of(K), 0, 0)[1]\nif not id then return nil end\nlocal record = call('HGET', waiters_of(K), id)\nlocal expiry = record and string.match(record, '^%d+')\nif expiry and tonumber(expiry) > now() then return id, record end\nunregister(K, id)\nend\nend\nlocal function register(K, id, ttl, client, holder, front)\nlocal queue, waiters = queue_of(K), waiters_of(K)\ncall('HSET', waiters, id, digits(now() + ttl) .. ' ' .. ttl .. ' ' .. client .. ' ' .. holder)\nif not call('ZSCORE', queue, id) then\nlocal end_of_line = front and 0 or -1\nlocal at = call('ZRANGE', queue, end_of_line, end_of_line, 'WITHSCORES')[2]\ncall('ZADD', queue, digits(at and (front and at - 1 or math.max(at + 1, now())) or now()), id)\nend\nif call('PTTL', queue) < tonumber(ttl) then\ncall('PEXPIRE', queue, 2 * ttl)\ncall('PEXPIRE', waiters, 2 * ttl)\nend\nend\nlocal function hint(K, by)\nlocal id, record = first(K)\nif id and id ~= by then call('PUBLISH', 'hf1:' .. string.match(record, '^%d+ %d+ (%S*)'), id .. ' ' .. K) end\nend"

export const ask: Script = {
  sha: '79cc422c27e595e43aec107e98a1b7f251d7e87a',
  text: [
    "if ARGV[3] == '1' and (ARGV[7] == 't' or ARGV[7] == 'w') then\nlocal K = string.sub(ARGV[1], 1, -2)\nif redis.call('EXISTS', K, 'hf1:redlock:evicted') == 0 then\nlocal id, attempt, group = string.match(ARGV[2], '(%S+) (%S+) (%S+)')\nlocal number = redis.call('HINCRBY', 'hf1:counters', group, 1)\nif number > 1 then\nnumber = string.format('%.0f', number)\nredis.call('SET', K, 'hfr1:' .. id .. ':' .. number .. ' ' .. attempt .. ' a ' .. ARGV[6] .. ' ' .. ARGV[4] .. ' ' .. ARGV[8], 'PX', ARGV[6])\nreturn number\nend\nredis.call('HDEL', 'hf1:counters', group)\nend\nend",
    common,
    "local Ks, ids, attempts, groups, count = {}, {}, {}, {}, 0\nfor K in string.gmatch(ARGV[1], '[^%z]+') do\ncount = count + 1\nKs[count] = K\nend\nlocal n = 0\nfor id, attempt, group in string.gmatch(ARGV[2], '(%S+) (%S+) (%S+)') do\nn = n + 1\nids[n], attempts[n], groups[n] = id, attempt, group\nend\nlocal client, class_of = ARGV[4], ARGV[5] ~= '' and ARGV[5]\nlocal values = call('MGET', unpack(Ks))\nlocal evictions = call('EXISTS', 'hf1:redlock:evicted') == 1\nlocal function evicted(id)\nreturn evictions and tonumber(call('HGET', 'hf1:redlock:evicted', id) or 0) > now()\nend\nlocal function counted(group)\nlocal number = call('HINCRBY', 'hf1:counters', group, 1)\nif number > 1 then return digits(number) end\ncall('HDEL', 'hf1:counters', group)\nreturn counted_to(group)\nend\nlocal function renewed(i, ttl, mode, number, attempt, flag, had, rest)\nif flag == 'e' then return 'e' end\nlocal K = Ks[i]\nif flag == 'o' and mode ~= 'o' and call('PTTL', K) > tonumber(ttl) then return number end\nif mode == 'o' then flag = 'o' end\nif tonumber(attempts[i]) > tonumber(attempt) then attempt = attempts[i] end\nlocal value = value_of(ids[i], number, attempt, flag, ttl, rest)\nif value == values[i] then call('PEXPIRE', K, ttl) else call('SET', K, value, 'PX', ttl) end\nreturn number\nend\nlocal function taken(i, value, ttl, mode, holder)\nlocal K, id = Ks[i], ids[i]\nlocal by, left = string.match(value, '^hfr1:([^:]*):'), call('PTTL', K)\nlocal version = string.match(value, '^hfr(%d+):')\nif version and version ~= '1' then return 'u:version:' .. version end\nif not by and left < 0 then return 'u:forever:string' end\nlocal ahead = 1 + call('ZCARD', queue_of(K))\nif mode == 'w' then\nif ahead >= 10000 and not call('ZSCORE', queue_of(K), id) then return 'u:full:10000' end\nregister(K, id, ttl, client, holder)\nelseif mode ~= 't' then\nlocal own, name = string.match(call('HGET', waiters_of(K), id), '^%d+ %d+ (%S*) (.*)$')\nregister(K, id, ttl, own, name)\nend\nif mode ~= 't' then ahead = 1 + call('ZRANK', queue_of(K), id) end\nlocal before, record = first(K)\nlocal look = left\nif before and before ~= id then look = string.match(record, '^%d+') - now() end\nlocal next = (not before or before == id) and '1' or '0'\nreturn table.concat({'t', by or redis.sha1hex(value), by and '0' or '1', ahead, next, digits(math.max(look, 0))}, ':')\nend\nlocal function ask(i)\nlocal at = class_of and 3 * (string.byte(class_of, i) - 33) + 6 or 6\nlocal ttl, mode, holder = ARGV[at], ARGV[at + 1], ARGV[at + 2]\nlocal K, id, value = Ks[i], ids[i], values[i]\nlocal number, attempt, flag, had, rest = mine(value, id)\nif number then return renewed(i, ttl, mode, number, attempt, flag, had, rest) end\nif evicted(id) then return 'e' end\nlocal renews, record = mode == 'r' or mode == 'o', false\nif renews then\nrecord = call('HGET', waiters_of(K), id)\nlocal expiry = record and string.match(record, '^%d+')\nif not expiry or tonumber(expiry) <= now() then return 'm:' .. digits(now()) end\nend\nif value then return taken(i, value, ttl, mode, holder) end\nlocal own = record and string.match(record, '^%d+ %d+ (.*)$') or client .. ' ' .. holder\nnumber = counted(groups[i])\nif not call('SET', K, value_of(id, number, attempts[i], 'a', ttl, own), 'NX', 'PX', ttl) then\nreturn 'u:type:' .. call('TYPE', K).ok\nend\nif record then unregister(K, id) end\nreturn number\nend\nlocal answers, seen = {}, {}\nfor i = 1, count do\nif seen[Ks[i]] then values[i] = call('GET', Ks[i]) end\nseen[Ks[i]] = true\nanswers[i] = ask(i)\nend\nreturn table.concat(answers, ' ')",
  ].join('\n'),
  grants: true,
}

export const raise: Script = {
  sha: 'f8508d93641bbe619c398f04cd1f4ed6ac066b39',
  text: [
    common,
    "local answers = {}\nfor at = 1, #ARGV, 4 do\nlocal K, id, to, group = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]\nlocal value = redis.pcall('GET', K)\nlocal number, attempt, flag, ttl, rest = mine(type(value) == 'string' and value, id)\nlocal count = number and tonumber(counted_to(group))\nif not number then\nanswers[#answers + 1] = '0'\nelseif count > tonumber(to) then\nanswers[#answers + 1] = digits(count)\nelse\ncall('HSET', 'hf1:counters', group, to)\ncall('SET', K, value_of(id, to, attempt, flag, ttl, rest), 'KEEPTTL')\nanswers[#answers + 1] = to\nend\nend\nreturn table.concat(answers, ' ')",
  ].join('\n'),
  grants: false,
}

export const mend: Script = {
  sha: 'e909bd60feab4fd6123a6a4b779167d78d08e2ba',
  text: [
    common,
    "for at = 2, #ARGV, 10 do\nlocal K, id, attempt, group, token, seen, not_after, ttl, flag, holder = unpack(ARGV, at, at + 9)\nlocal done\nif seen == '' then\ndone = now() <= tonumber(not_after) and call('SET', K, value_of(id, token, attempt, flag, ttl, ARGV[1] .. ' ' .. holder), 'NX', 'PX', ttl)\nif done then unregister(K, id) end\nelse\nlocal value = redis.pcall('GET', K)\nlocal number, since, is, had, rest = mine(type(value) == 'string' and value, id)\ndone = number == seen\nif done then call('SET', K, value_of(id, token, since, is, had, rest), 'KEEPTTL') end\nend\nif done and tonumber(counted_to(group)) < tonumber(token) then call('HSET', 'hf1:counters', group, token) end\nend\nreturn redis.status_reply('OK')",
  ].join('\n'),
  grants: false,
}

export const leave: Script = {
  sha: 'b01cbcc510b417e5596ea7182e1bf553feccffeb',
  text: [
    "if ARGV[3] == '1' then\nlocal K, id = string.sub(ARGV[1], 1, -2), string.sub(ARGV[2], 1, -2)\nif redis.call('EXISTS', 'hf1:redlock:queue:{' .. K .. '}') == 0 then\nlocal value = redis.pcall('GET', K)\nif type(value) == 'string' and string.sub(value, 1, #id + 6) == 'hfr1:' .. id .. ':' then\nredis.call('DEL', K)\nreturn '1'\nend\nreturn '0'\nend\nend",
    common,
    "local Ks, queues, count = {}, {}, 0\nfor K in string.gmatch(ARGV[1], '[^%z]+') do\ncount = count + 1\nKs[count], queues[count] = K, queue_of(K)\nend\nlocal values = call('MGET', unpack(Ks))\nlocal lined = call('EXISTS', unpack(queues)) > 0\nlocal answers, i = {}, 0\nfor id in string.gmatch(ARGV[2], '%S+') do\ni = i + 1\nlocal K = Ks[i]\nlocal was = mine(values[i], id) and call('DEL', K) == 1\nif lined then\nwas = unregister(K, id) or was\nif call('EXISTS', K) == 0 then hint(K) end\nend\nanswers[i] = was and '1' or '0'\nend\nreturn table.concat(answers)",
  ].join('\n'),
  grants: false,
}

export const retreat: Script = {
  sha: 'c6f98c2138313ab9d8f4cc64d8a71860a3e3e33a',
  text: [
    common,
    "local answers = {}\nfor at = 2, #ARGV, 5 do\nlocal K, id, up_to, ttl, holder = unpack(ARGV, at, at + 4)\nlocal value = redis.pcall('GET', K)\nlocal number, attempt, _, _, rest = mine(type(value) == 'string' and value, id)\nlocal was = number and tonumber(attempt) <= tonumber(up_to)\nif was then call('DEL', K) end\nif ttl ~= '' and not (number and not was) and not call('ZSCORE', queue_of(K), id) then\nlocal client, name = string.match(rest or ARGV[1] .. ' ' .. holder, '^(%S*) (.*)$')\nregister(K, id, ttl, client, name, true)\nend\nif was then hint(K, id) end\nanswers[#answers + 1] = was and '1' or '0'\nend\nreturn table.concat(answers)",
  ].join('\n'),
  grants: false,
}

export const look: Script = {
  sha: 'e994398dc04c0272ba2c9e0685646d746786552f',
  text: [
    common,
    "local K = ARGV[1]\nlocal kind = call('TYPE', K).ok\nlocal reply = {kind, kind == 'string' and call('GET', K) or '', call('PTTL', K)}\nfirst(K)\nfor _, id in ipairs(call('ZRANGE', queue_of(K), 0, -1)) do\nlocal record = call('HGET', waiters_of(K), id)\nlocal left = record and string.match(record, '^%d+') - now()\nif left and left > 0 then\nlocal n = #reply\nreply[n + 1], reply[n + 2], reply[n + 3] = id, record, left\nend\nend\nreturn reply",
  ].join('\n'),
  grants: false,
}

export const evict: Script = {
  sha: '4ec5bebd4744cc05173b54cad84fe82c4db6fc27',
  text: [
    common,
    "local K, id, how = ARGV[1], ARGV[2], ARGV[3]\nlocal value = redis.pcall('GET', K)\nlocal number, attempt, _, ttl, rest = mine(type(value) == 'string' and value, id)\nif not number then return 0 end\nif how == 'expire' then\ncall('SET', K, value_of(id, number, attempt, 'e', ttl, rest), 'KEEPTTL')\nelse\nlocal left = math.max(call('PTTL', K), 1)\ncall('DEL', K)\nlocal known = call('HGETALL', 'hf1:redlock:evicted')\nfor at = 1, #known, 2 do\nif tonumber(known[at + 1]) <= now() then call('HDEL', 'hf1:redlock:evicted', known[at]) end\nend\ncall('HSET', 'hf1:redlock:evicted', id, digits(now() + left))\nif call('PTTL', 'hf1:redlock:evicted') < left then call('PEXPIRE', 'hf1:redlock:evicted', left) end\nhint(K)\nend\ncall('PUBLISH', 'hf1:' .. string.match(rest, '^%S*'), id .. ' ' .. K)\nreturn 1",
  ].join('\n'),
  grants: false,
}
