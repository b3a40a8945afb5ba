/** The scripts that are published are the Lua files, and nothing else. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import * as redis from '../../src/engines/redis/scripts.ts'
import * as redlock from '../../src/engines/redlock/scripts.ts'

const ENGINES = { redis, redlock }
const scripts = Object.entries(ENGINES).flatMap(([engine, all]) =>
  Object.entries(all).map(([name, script]) => ({ name: `${engine}: ${name}`, ...script })),
)

test.each(Object.keys(ENGINES))(
  'scripts.ts of %s is made from the Lua files as they are: run npm run build',
  async (engine) => {
    const { generate } = (await import('../../scripts/lua.mjs' as string)) as { generate(engine: string): string }
    expect(readFileSync(`src/engines/${engine}/scripts.ts`, 'utf8')).toBe(generate(engine))
  },
)

test.each(scripts)('the SHA-1 of $name is that of its text', ({ sha, text }) => {
  expect(createHash('sha1').update(text).digest('hex')).toBe(sha)
})

test.each(Object.keys(ENGINES))(
  '%s: every Lua file says in its header what it is for, and a script also its keys, arguments and answer',
  (engine) => {
    const folder = `src/engines/${engine}/lua`
    for (const file of readdirSync(folder)) {
      const header = readFileSync(`${folder}/${file}`, 'utf8').split(/^[^-]/m)[0] ?? ''
      expect(header, file).toMatch(/^-- \w/)
      if (!header.includes('not a script of its own'))
        for (const part of ['KEYS', 'ARGV', 'Answer']) expect(header, file).toContain(part)
    }
  },
)
