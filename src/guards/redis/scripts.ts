/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

import type { Script } from '../../clients/redis/script-caller.ts'

export const guarded: Script = {
  sha: '055a9adc92a5bf82e9792cadf43b7f4c48b7b8a5',
  text: [
    "local access, token, forget = ARGV[1], ARGV[2], tonumber(ARGV[3])\nlocal function lower(a, b)\nif #a ~= #b then return #a < #b end\nreturn a < b\nend\nlocal marks = redis.call('HMGET', KEYS[1], 'format', 'seen', 'written')\nlocal seen, written = marks[2] or '0', marks[3] or '0'\nif access == 'reset' then\nif marks[2] ~= token then return { 'ok', 0 } end\nreturn { 'ok', redis.call('DEL', KEYS[1]) }\nend\nif marks[1] and marks[1] ~= '1' then return { 'newer' } end\nlocal lowest = access == 'write' and seen or written\nif lower(token, lowest) then return { 'stale', lowest } end\nif lower(seen, token) then seen = token end\nif access == 'write' then written = token end\nif seen ~= marks[2] or written ~= marks[3] then\nredis.call('HSET', KEYS[1], 'format', '1', 'seen', seen, 'written', written)\nend\nif forget then\nlocal left = redis.call('PTTL', KEYS[1])\nif not marks[1] or (left >= 0 and left < forget) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end\nelseif marks[1] then\nredis.call('PERSIST', KEYS[1])\nend\nlocal replies = { 'ok' }\nlocal at = 4\nfor index = 2, #KEYS do\nlocal words = tonumber(ARGV[at])\nreplies[index] = redis.call(ARGV[at + 1], KEYS[index], unpack(ARGV, at + 2, at + words))\nat = at + words + 1\nend\nreturn replies",
  ].join('\n'),
  grants: false,
}
