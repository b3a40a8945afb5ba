/**
 * Makes each `scripts.ts` from the Lua files beside it: what is only for readers is taken out.
 *
 * The scripts are source files with headers; what is published has them as text, so that nothing has to be found on a
 * disk at run time and bundlers need no settings. `npm run build` comes here first, and a test keeps the two equal.
 */
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** By folder: what scripts include, the scripts, and which of them grant, or store what must not be lost. */
const FOLDERS = {
  'src/engines/redis': {
    parts: ['counter', 'keys', 'entry', 'line', 'place', 'departure', 'record', 'one_step'],
    scripts: [
      'enter',
      'renew',
      'leave',
      'alone',
      'evict',
      'inspect',
      'watch',
      'get',
      'put',
      'take',
      'hold',
      'begin',
      'finish',
    ],
    grants: ['enter', 'renew', 'put', 'hold', 'begin', 'finish'],
  },
  'src/engines/redlock': {
    parts: ['common'],
    scripts: ['take', 'raise', 'repair', 'leave', 'undo', 'inspect', 'evict'],
    grants: ['take'],
  },
  'src/guards/redis': {
    parts: [],
    scripts: ['guarded'],
    grants: [],
  },
}

const HEAD = `/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

import type { Script } from '../../clients/redis/script-caller.ts'
`

/** The file as it should be. */
export function generate(folder) {
  const { parts, scripts } = FOLDERS[folder]
  const texts = parts.map((name) => `const ${name} =\n  ${JSON.stringify(code(folder, name).join('\n'))}\n`)
  return [HEAD, ...texts, ...scripts.map((name) => declaration(folder, name))].join('\n')
}

function declaration(folder, name) {
  const pieces = [[]]
  for (const line of code(folder, name)) {
    const [, included] = /^--#include (\w+)$/.exec(line) ?? []
    if (included === undefined) pieces.at(-1).push(line)
    else pieces.push(included, [])
  }
  const whole = pieces.flatMap((piece) => (typeof piece === 'string' ? code(folder, piece) : piece)).join('\n')
  const texts = pieces
    .filter((piece) => piece.length > 0)
    .map((piece) => (typeof piece === 'string' ? piece : JSON.stringify(piece.join('\n'))))
  const sha = createHash('sha1').update(whole).digest('hex')
  return [
    `export const ${name}: Script = {`,
    `  sha: '${sha}',`,
    '  text: [',
    ...texts.map((text) => `    ${text},`),
    `  ].join('\\n'),`,
    `  grants: ${FOLDERS[folder].grants.includes(name)},`,
    '}',
    '',
  ].join('\n')
}

/** Without comments, empty lines and indentation. */
function code(folder, name) {
  const lines = readFileSync(join(folder, 'lua', `${name}.lua`), 'utf8').split('\n')
  return lines
    .map((line) => line.trim())
    .filter((line) => line !== '' && (!line.startsWith('--') || line.startsWith('--#include')))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const folder of Object.keys(FOLDERS)) writeFileSync(join(folder, 'scripts.ts'), generate(folder))
}
