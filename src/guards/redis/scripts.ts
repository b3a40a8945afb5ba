/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

import type { Script } from '../../clients/redis/script-caller.ts'

export const guarded: Script = {
  sha: 'fbff7ff7d68b368e2e3c1b61991208b3af67576c',
  text: [
    "local touch, token = ARGV[1], ARGV[2]\nlocal function lower(a, b)\nif #a ~= #b then return #a < #b end\nreturn a < b\nend\nlocal marks = redis.call('HMGET', KEYS[1], 'format', 'seen', 'written')\nlocal seen, written = marks[2] or '0', marks[3] or '0'\nif touch == 'reset' then\nif marks[2] ~= token then return { 'ok', 0 } end\nreturn { 'ok', redis.call('DEL', KEYS[1]) }\nend\nif marks[1] and marks[1] ~= '1' then return { 'newer' } end\nlocal least = touch == 'write' and seen or written\nif lower(token, least) then return { 'stale', least } end\nif lower(seen, token) then seen = token end\nif touch == 'write' then written = token end\nif seen ~= marks[2] or written ~= marks[3] then\nredis.call('HSET', KEYS[1], 'format', '1', 'seen', seen, 'written', written)\nend\nlocal replies = { 'ok' }\nlocal at = 3\nfor index = 2, #KEYS do\nlocal words = tonumber(ARGV[at])\nreplies[index] = redis.call(ARGV[at + 1], KEYS[index], unpack(ARGV, at + 2, at + words))\nat = at + words + 1\nend\nreturn replies",
  ].join('\n'),
  grants: false,
}
