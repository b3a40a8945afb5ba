/**
 * Makes `src/engines/<engine>/sources.ts` from the SQL files of an engine, with their comments: what
 * `holdfast migrate --print` prints is for people.
 *
 * The SQL is source files with headers; what is published has it as text, so that nothing has to be found on a disk at
 * run time and bundlers need no settings. `npm run build` comes here first, and a test keeps the two equal.
 *
 * A line `--#include name` stands for what is in name.sql, indented as that line is: what several functions or
 * procedures repeat is written once, as in Lua (see lua.mjs).
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** By engine: its files, in the order in which a server has to read them, and the parts that these include. */
export const ENGINES = {
  postgres: {
    files: [
      'tables',
      'line',
      'tidy',
      'enter',
      'renew',
      'leave',
      'evict',
      'look',
      'records',
      'entrances',
      'take',
      'pool_rows',
      'pools',
    ],
    parts: ['open_next_line', 'take_free_line'],
  },
  mysql: {
    files: [
      'tables',
      'call',
      'line',
      'renew_all',
      'enter',
      'renew',
      'leave',
      'evict',
      'look',
      'tidy',
      'records',
      'take',
      'pools',
    ],
    parts: [
      'declare_line',
      'declare_rollback',
      'news_name',
      'begin',
      'open_line',
      'settle_line',
      'settle_departure',
      'interrupted',
      'finish',
      'user_code',
    ],
  },
}

export function target(engine) {
  return join('src', 'engines', engine, 'sources.ts')
}

/** The file as it should be. */
export function generate(engine) {
  const parts = ENGINES[engine].files.map((name) => `  ${JSON.stringify(textOf(engine, name))},`)
  const head = '/** Made by scripts/sql.mjs from sql/*.sql. Read those. */'
  return `${head}\nexport const sources: readonly string[] = [\n${parts.join('\n')}\n]\n`
}

function textOf(engine, name) {
  const text = readFileSync(join('src', 'engines', engine, 'sql', `${name}.sql`), 'utf8')
  return text.replaceAll(/^( *)--#include (\w+)$/gm, (_, indent, part) => {
    if (!ENGINES[engine].parts.includes(part)) throw new Error(`${engine}/sql/${name}.sql includes an unknown ${part}`)
    return textOf(engine, part)
      .trimEnd()
      .replaceAll(/^(?=.)/gm, indent)
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const engine of Object.keys(ENGINES)) writeFileSync(target(engine), generate(engine))
}
