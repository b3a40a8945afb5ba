/** The scripts that are published are the Lua files, and nothing else. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import * as scripts from '../../src/engines/redis/scripts.ts'

const FOLDER = 'src/engines/redis/lua'

test('scripts.ts is made from the Lua files as they are: run npm run build', async () => {
  const { generate } = (await import('../../scripts/lua.mjs' as string)) as { generate(): string }
  expect(readFileSync('src/engines/redis/scripts.ts', 'utf8')).toBe(generate())
})

test.each(Object.entries(scripts))('the SHA-1 of %s is that of its text', (_, { sha, text }) => {
  expect(createHash('sha1').update(text).digest('hex')).toBe(sha)
})

test('every Lua file says in its header what it is for, and a script also its keys, arguments and answer', () => {
  for (const file of readdirSync(FOLDER)) {
    const header = readFileSync(`${FOLDER}/${file}`, 'utf8').split(/^[^-]/m)[0] ?? ''
    expect(header, file).toMatch(/^-- \w/)
    if (!header.includes('not a script of its own')) for (const part of ['KEYS', 'ARGV', 'Answer']) expect(header, file).toContain(part)
  }
})
