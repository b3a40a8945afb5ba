/**
 * The etcd harness does what it says: members come together, one can be cut off and healed, and all of them survive
 * being killed.
 */
import { expect, test, vi } from 'vitest'
import { EtcdEnsemble } from './ensemble.ts'
import { EtcdServer, findOwnEtcd } from './etcd.ts'
import { describeServer } from './suite.ts'

const LIMIT = { timeout: 40_000, interval: 20 }

/** Through the JSON gateway that every etcd has. */
async function put({ port }: EtcdServer, value: string): Promise<string | undefined> {
  const body = JSON.stringify({ key: btoa('key'), value: btoa(value) })
  const answer = await fetch(`http://127.0.0.1:${port}/v3/kv/put`, {
    method: 'POST',
    body,
    signal: AbortSignal.timeout(2_000),
  })
  const { header } = (await answer.json()) as { header?: { revision: string } }
  return header?.revision
}

await describeServer('the etcd harness', findOwnEtcd, (source) => {
  test('a server starts, is killed, and has its data when it is back', async () => {
    await using server = await EtcdServer.start(source)
    const before = Number(await put(server, 'before'))
    await server.process?.kill()
    await server.process?.start()
    expect(Number(await put(server, 'after'))).toBe(before + 1)
  })

  test('a leader that is cut off can write nothing while the others have one of their own, and follows when healed', async () => {
    await using ensemble = await EtcdEnsemble.start(source.program)
    const old = await ensemble.leader()
    await ensemble.cutOff(old)
    const next = await ensemble.leaderWithout(old)
    expect(next).not.toBe(old)
    expect(await put(next, 'there')).toBeDefined()
    await expect(put(old, 'here')).rejects.toThrow()
    ensemble.heal()
    await vi.waitFor(async () => expect(await put(old, 'here')).toBeDefined(), LIMIT)
  })

  test('all members are killed and come back', async () => {
    await using ensemble = await EtcdEnsemble.start(source.program)
    await ensemble.restart('killed')
    await ensemble.rollingRestart('cleanly')
    expect(await put(await ensemble.leader(), 'still there')).toBeDefined()
  })
})
