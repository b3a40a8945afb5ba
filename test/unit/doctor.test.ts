/** What `holdfast doctor` finds, as a program that reads its JSON looks for it: by name. */
import { expect, test } from 'vitest'
import { type Examined, examine } from '../../src/cli/checks.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
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

async function anotherOn(server: MemoryServer): ReturnType<Examined['another']> {
  const locks = createLocks(memory({ server }))
  return { locks, [Symbol.asyncDispose]: () => locks.close() }
}
