/**
 * Makes `src/engines/<engine>/sources.ts` from the SQL files of an engine, with their comments: what
 * `holdfast migrate --print` prints is for people.
 *
 * The SQL is source files with headers; what is published has it as text, so that nothing has to be found on a disk at
 * run time and bundlers need no settings. `npm run build` comes here first, and a test keeps the two equal.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Each engine with its files, in the order in which a server has to read them. */
export const ENGINES = {
  postgres: ['tables', 'prepare', 'line', 'tidy', 'enter', 'renew', 'leave', 'evict', 'look'],
  mysql: ['tables', 'call', 'line', 'quick', 'enter', 'renew', 'leave', 'evict', 'look', 'tidy'],
}

export function target(engine) {
  return join('src', 'engines', engine, 'sources.ts')
}

/** The file as it should be. */
export function generate(engine) {
  const parts = ENGINES[engine].map((name) => {
    const text = readFileSync(join('src', 'engines', engine, 'sql', `${name}.sql`), 'utf8')
    return `  ${JSON.stringify(text)},`
  })
  const head = '/** Made by scripts/sql.mjs from sql/*.sql. Read those. */'
  return `${head}\nexport const sources: readonly string[] = [\n${parts.join('\n')}\n]\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const engine of Object.keys(ENGINES)) writeFileSync(target(engine), generate(engine))
}
