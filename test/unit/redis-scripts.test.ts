/** The scripts that are published are the Lua files, and nothing else. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import * as redis from '../../src/engines/redis/scripts.ts'
import * as redlock from '../../src/engines/redlock/scripts.ts'
import * as guard from '../../src/guards/redis/scripts.ts'

const FOLDERS = { 'src/engines/redis': redis, 'src/engines/redlock': redlock, 'src/guards/redis': guard }
const scripts = Object.entries(FOLDERS).flatMap(([folder, all]) =>
  Object.entries(all).map(([name, script]) => ({ name: `${folder}: ${name}`, ...script })),
)

test.each(Object.keys(FOLDERS))(
  '%s/scripts.ts is made from the Lua files as they are: run npm run build',
  async (folder) => {
    const { generate } = (await import('../../scripts/lua.mjs' as string)) as { generate(folder: string): string }
    expect(readFileSync(`${folder}/scripts.ts`, 'utf8')).toBe(generate(folder))
  },
)

test.each(scripts)('the SHA-1 of $name is that of its text', ({ sha, text }) => {
  expect(createHash('sha1').update(text).digest('hex')).toBe(sha)
})

test.each(Object.keys(FOLDERS))(
  '%s: every Lua file says in its header what it is for, and a script also its keys, arguments and answer',
  (folder) => {
    for (const file of readdirSync(`${folder}/lua`)) {
      const header = readFileSync(`${folder}/lua/${file}`, 'utf8').split(/^[^-]/m)[0] ?? ''
      expect(header, file).toMatch(/^-- \w/)
      if (!header.includes('not a script of its own'))
        for (const part of ['KEYS', 'ARGV', 'Answer']) expect(header, file).toContain(part)
    }
  },
)
