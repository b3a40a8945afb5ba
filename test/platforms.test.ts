/** The tables of docs/platforms.md and the line of README.md say what the matrix has found, and nothing else. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { OTHER_SERVERS } from './servers/other-servers.ts'

interface Platforms {
  readonly CLIENT_PACKAGES: readonly string[]
  readonly SERVER_TESTS: Readonly<Record<string, object>>
  outdatedPages(results: object): readonly string[]
}

const { CLIENT_PACKAGES, outdatedPages, SERVER_TESTS } = (await import(
  '../scripts/platforms.mjs' as string
)) as Platforms

const results = JSON.parse(readFileSync('test/matrix/results.json', 'utf8')) as Record<string, { on: string }>

test('the pages are what `npm run matrix` wrote', () => {
  expect(outdatedPages(results)).toEqual([])
})

test('a page that was changed by hand is noticed', () => {
  const changed = { ...results, 'server none@sid': { on: '2026-01-01', passed: 1, failed: [], server: 'None 1.0' } }
  expect(outdatedPages(changed)).toEqual(['docs/platforms.md', 'README.md'])
})

test('every client that a user may bring is in the matrix, and so is every place of a server', () => {
  const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    peerDependencies: Record<string, string>
  }
  const clients = /ioredis|redis|glide|pg|postgres|mysql|mongodb/
  expect(
    Object.keys(peerDependencies)
      .filter((name) => clients.test(name))
      .toSorted(),
  ).toEqual(CLIENT_PACKAGES.toSorted())
  const places = new Set(Object.values(OTHER_SERVERS).map(({ place }) => place))
  expect([...places].toSorted()).toEqual(Object.keys(SERVER_TESTS).toSorted())
})
