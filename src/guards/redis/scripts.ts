/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

import type { Script } from '../../clients/redis/script-caller.ts'

export const guarded: Script = {
  sha: '9998bb1ec2fba2b875534ef82c54a89d43dd93a0',
  text: [
    "local access, token = ARGV[1], ARGV[2]\nlocal function lower(a, b)\nif #a ~= #b then return #a < #b end\nreturn a < b\nend\nlocal marks = redis.call('HMGET', KEYS[1], 'format', 'seen', 'written')\nlocal seen, written = marks[2] or '0', marks[3] or '0'\nif access == 'reset' then\nif marks[2] ~= token then return { 'ok', 0 } end\nreturn { 'ok', redis.call('DEL', KEYS[1]) }\nend\nif marks[1] and marks[1] ~= '1' then return { 'newer' } end\nlocal lowest = access == 'write' and seen or written\nif lower(token, lowest) then return { 'stale', lowest } end\nif lower(seen, token) then seen = token end\nif access == 'write' then written = token end\nif seen ~= marks[2] or written ~= marks[3] then\nredis.call('HSET', KEYS[1], 'format', '1', 'seen', seen, 'written', written)\nend\nlocal replies = { 'ok' }\nlocal at = 3\nfor index = 2, #KEYS do\nlocal words = tonumber(ARGV[at])\nreplies[index] = redis.call(ARGV[at + 1], KEYS[index], unpack(ARGV, at + 2, at + words))\nat = at + words + 1\nend\nreturn replies",
  ].join('\n'),
  grants: false,
}
