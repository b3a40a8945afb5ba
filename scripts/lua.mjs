/**
 * Makes `src/engines/redis/scripts.ts` from the Lua files beside it: what is only for readers is taken out.
 *
 * The scripts are source files with headers; what is published has them as text, so that nothing has to be found on a disk at run time and bundlers need no
 * settings. `npm run build` comes here first, and a test keeps the two equal.
 */
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const FOLDER = 'src/engines/redis/lua'
const TARGET = 'src/engines/redis/scripts.ts'
/** What scripts include, and the scripts. */
const PARTS = ['keys', 'entry', 'line', 'place']
const SCRIPTS = ['enter', 'renew', 'leave', 'alone', 'evict', 'inspect', 'watch', 'fence']
const GRANTS = ['enter', 'renew']

const HEAD = `/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

export interface Script {
  /** What EVALSHA calls it: the SHA-1 of the text. */
  readonly sha: string
  readonly text: string
  /** Whether what it answers may be that somebody holds. */
  readonly grants: boolean
}
`

/** The file as it should be. */
export function generate() {
  const parts = PARTS.map((name) => `const ${name} =\n  ${JSON.stringify(code(name).join('\n'))}\n`)
  return [HEAD, ...parts, ...SCRIPTS.map(declaration)].join('\n')
}

function declaration(name) {
  const pieces = [[]]
  for (const line of code(name)) {
    const [, included] = /^--#include (\w+)$/.exec(line) ?? []
    if (included === undefined) pieces.at(-1).push(line)
    else pieces.push(included, [])
  }
  const whole = pieces.flatMap((piece) => (typeof piece === 'string' ? code(piece) : piece)).join('\n')
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
    `  grants: ${GRANTS.includes(name)},`,
    '}',
    '',
  ].join('\n')
}

/** Without comments, empty lines and indentation. */
function code(name) {
  const lines = readFileSync(join(FOLDER, `${name}.lua`), 'utf8').split('\n')
  return lines.map((line) => line.trim()).filter((line) => line !== '' && (!line.startsWith('--') || line.startsWith('--#include')))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(TARGET, generate())
