/** The rooms of `src/` keep their directions, and no two files import each other in a circle. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { cycles, forbidden, importsOfSource, picture, ROOMS, roomOf, sourceFiles, unused } from './rooms.ts'

const imports = importsOfSource()

test('every file is in a room, and every room has files', () => {
  const rooms = new Set(sourceFiles().map((path) => roomOf(path.replace(/^src\//, ''))))
  expect([...rooms].sort()).toEqual(Object.keys(ROOMS).sort())
})

test('a room imports only what the table allows', () => {
  expect(forbidden(imports)).toEqual([])
})

test('the table allows nothing that no file does', () => {
  expect(unused(imports)).toEqual([])
})

test('no files import each other in a circle, types included', () => {
  expect(cycles(imports)).toEqual([])
})

test('a forbidden direction and a circle are found', () => {
  const wrong = [
    { from: 'core/a.ts', to: 'primitives/b.ts' },
    { from: 'primitives/b.ts', to: 'core/a.ts' },
    { from: 'engines/redis/engine.ts', to: 'engines/postgres/engine.ts' },
    { from: 'engines/redis/engine.ts', to: 'clients/redis/wire.ts' },
  ]
  expect(forbidden(wrong)).toEqual([
    'core/a.ts -> primitives/b.ts',
    'engines/redis/engine.ts -> engines/postgres/engine.ts',
  ])
  expect(cycles(wrong)).toEqual(['core/a.ts -> primitives/b.ts'])
})

test('the picture in ARCHITECTURE.md is the table', () => {
  const page = readFileSync('ARCHITECTURE.md', 'utf8')
  expect(/## Who imports whom\n.*?```\n(.*?)\n```/s.exec(page)?.[1]).toBe(wrapped(picture()))
})

/** As it is wrapped there: at most 100 columns. */
function wrapped(text: string): string {
  return text
    .split('\n')
    .flatMap((line) => {
      const indent = line.indexOf('-> ') + 3
      const lines = [line.slice(0, indent)]
      for (const word of line.slice(indent).split(/(?<=,) /)) {
        const last = lines.at(-1) as string
        if (last.length + word.length < 100)
          lines[lines.length - 1] = last.length > indent ? `${last} ${word}` : last + word
        else lines.push(' '.repeat(indent) + word)
      }
      return lines
    })
    .join('\n')
}
