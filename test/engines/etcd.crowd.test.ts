/** Many callers of one key, on the way to a server that is not next door; and a member that serves no client. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import { connect } from '../../src/index.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { freePort } from '../servers/ports.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'

const CALLERS = 300
const DELAY_MS = 5
const LIMIT = { timeout: 30_000, interval: 50 }

await describeServer('etcd', findOwnEtcd, (source) => {
  let server: EtcdServer

  beforeAll(async () => {
    server = await EtcdServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  test('many callers of one key are all served, in order, though one call could not enter them in its time', async () => {
    await using proxy = await FaultProxy.start(server)
    proxy.delay(DELAY_MS)
    const locks = await connect(`etcd://127.0.0.1:${proxy.port}`, { ttl: '2s' })
    onTestFinished(() => locks.close())
    const served: number[] = []
    const callers = Array.from({ length: CALLERS }, async (_, index) => {
      const lease = await locks.mutex('crowd').acquire()
      served.push(index)
      await lease.release()
    })
    await Promise.all(callers)
    expect(served).toEqual(callers.map((_, index) => index))
  })

  test('a member that has no vote yet, first in the list, is passed over', async () => {
    const peerPort = await freePort()
    const added = await fetch(`http://127.0.0.1:${server.port}/v3/cluster/member/add`, {
      method: 'POST',
      body: JSON.stringify({ peerURLs: [`http://127.0.0.1:${peerPort}`], isLearner: true }),
    })
    const { members } = (await added.json()) as { members: { name?: string; peerURLs: string[] }[] }
    const all = members.map(({ name, peerURLs }) => `${name ?? 'learner'}=${peerURLs[0]}`).join(',')
    const membership = { name: 'learner', peerPort, advertisedPort: peerPort, all }
    await using learner = await EtcdServer.member(source.program, membership, {
      args: ['--initial-cluster-state', 'existing'],
    })
    const alone = new EtcdClient({ endpoints: [learner] })
    await vi.waitFor(() => expect(alone.grant(2)).rejects.toThrow('learner'), LIMIT)
    alone.close()
    const locks = await connect(`etcd://127.0.0.1:${learner.port},127.0.0.1:${server.port}`)
    onTestFinished(() => locks.close())
    const lease = await locks.mutex('beside a learner').tryAcquire()
    expect(lease?.held).toBe(true)
  })
})
