/** What `holdfast doctor` finds, as a program that reads its JSON looks for it: by name. */
import { expect, test } from 'vitest'
import { type Examined, examine } from '../../src/cli/doctor-checks.ts'
import { isAtLeast } from '../../src/core/version-number.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { clockSkew, connections } from '../../src/engines/shared/findings.ts'
import { createLocks } from '../../src/locks.ts'

test('doctor: a check that cannot be made is called what its findings are called', async () => {
  const server = new MemoryServer()
  const engine = memory({ server })
  await using locks = createLocks(engine)
  const findings = async (another: Examined['another']): Promise<unknown[]> => {
    const found = await examine({ engine, locks, another })
    return found.map(({ name, status }) => [name, status])
  }
  const all = [
    ['node', 'ok'],
    ['reachable', 'ok'],
    ['round trip', 'ok'],
    ['verbs', 'ok'],
    ['hand-off', 'ok'],
  ]
  expect(await findings(() => anotherOn(server))).toEqual(all)
  const refused = async (): Promise<never> => Promise.reject(new Error('too many connections'))
  expect(await findings(refused)).toEqual(all.with(-1, ['hand-off', 'fail']))
})

test('doctor: a server is warned of when nine in ten of its connections are in use', () => {
  expect(connections(89, 100, 'raise it')).toEqual({ name: 'connections', status: 'ok', finding: '89 of 100 in use' })
  expect(connections(90, 100, 'raise it')).toMatchObject({ status: 'warn', todo: 'raise it' })
})

test('doctor: a clock is ahead of ours, or behind', () => {
  expect(clockSkew(2.4).finding).toMatch(/is 2 ms ahead of this host's/)
  expect(clockSkew(-2.4).finding).toMatch(/is 2 ms behind this host's/)
})

test.each([
  ['6.2.0', [6, 2], true],
  ['6.10', [6, 2], true],
  ['6.1.9', [6, 2], false],
  ['7', [6, 2], true],
  ['6', [6, 2], false],
  ['5.9', [6, 2], false],
  ['3.51.3', [3, 51, 3], true],
  ['3.51.2', [3, 51, 3], false],
  ['10.11.14-MariaDB-0+deb12u2', [10, 6], true],
  ['15.14 (Debian 15.14-0+deb12u1)', [15, 14], true],
  ['', [6, 2], false],
  ['unknown', [3, 51, 3], false],
])('doctor: version "%s" against %j: new enough is %s', (version, least, enough) => {
  expect(isAtLeast(version, least)).toBe(enough)
})

async function anotherOn(server: MemoryServer): ReturnType<Examined['another']> {
  const locks = createLocks(memory({ server }))
  return { locks, [Symbol.asyncDispose]: () => locks.close() }
}
