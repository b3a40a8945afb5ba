/**
 * Makes the `scripts.ts` of the engines on Redis from the Lua files beside them: what is only for readers is taken out.
 *
 * The scripts are source files with headers; what is published has them as text, so that nothing has to be found on a
 * disk at run time and bundlers need no settings. `npm run build` comes here first, and a test keeps the two equal.
 */
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** By engine: what scripts include, the scripts, and which of them grant. */
const ENGINES = {
  redis: {
    parts: ['keys', 'entry', 'line', 'place'],
    scripts: ['enter', 'renew', 'leave', 'alone', 'evict', 'inspect', 'watch', 'fence'],
    grants: ['enter', 'renew'],
  },
  redlock: {
    parts: ['common'],
    scripts: ['ask', 'raise', 'mend', 'leave', 'retreat', 'look', 'evict'],
    grants: ['ask'],
  },
}

const HEAD = `/** Made by scripts/lua.mjs from lua/*.lua. Read those: they say what is stored, and why. */

export interface Script {
  /** What EVALSHA calls it: the SHA-1 of the text. */
  readonly sha: string
  readonly text: string
  /** Whether what it answers may be that somebody holds. */
  readonly grants: boolean
}
`

const folder = (engine) => join('src', 'engines', engine)

/** The file as it should be. */
export function generate(engine) {
  const { parts, scripts } = ENGINES[engine]
  const texts = parts.map((name) => `const ${name} =\n  ${JSON.stringify(code(engine, name).join('\n'))}\n`)
  return [HEAD, ...texts, ...scripts.map((name) => declaration(engine, name))].join('\n')
}

function declaration(engine, name) {
  const pieces = [[]]
  for (const line of code(engine, name)) {
    const [, included] = /^--#include (\w+)$/.exec(line) ?? []
    if (included === undefined) pieces.at(-1).push(line)
    else pieces.push(included, [])
  }
  const whole = pieces.flatMap((piece) => (typeof piece === 'string' ? code(engine, piece) : piece)).join('\n')
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
    `  grants: ${ENGINES[engine].grants.includes(name)},`,
    '}',
    '',
  ].join('\n')
}

/** Without comments, empty lines and indentation. */
function code(engine, name) {
  const lines = readFileSync(join(folder(engine), 'lua', `${name}.lua`), 'utf8').split('\n')
  return lines
    .map((line) => line.trim())
    .filter((line) => line !== '' && (!line.startsWith('--') || line.startsWith('--#include')))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const engine of Object.keys(ENGINES)) writeFileSync(join(folder(engine), 'scripts.ts'), generate(engine))
}
