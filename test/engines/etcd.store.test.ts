/** Records on a real etcd: the leases they are under, what another program has put, and round trips. */
import { expect, test } from 'vitest'
import { isStored, putOne, putting, read, removing, textOf } from '../../conformance/records.ts'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import type { Store } from '../../src/core/store.ts'
import { newClaim } from '../claims.ts'
import { findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

/** Counts what is asked. */
class Counting extends EtcdClient {
  asked: string[] = []

  override call(...question: Parameters<EtcdClient['call']>): Promise<Buffer> {
    this.asked.push(question[0].slice(question[0].lastIndexOf('/') + 1))
    return super.call(...question)
  }
}

await describeServer('records of etcd', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  const leaseOf = async (key: string): Promise<bigint | undefined> =>
    (await scene.direct.range({ key: `holdfast/record/${key}` })).kvs[0]?.lease

  test('changes of one process, one after the other, are one round trip each', async () => {
    const { client, engine } = scene.openOn(Counting)
    const store = engine.store as Store
    const claim = newClaim('trips', { ttlMs: 60_000 })
    await engine.enter([claim])
    isStored(await putOne(store, putting('warm', 'up', {}, { ttlMs: 60_000 })))
    client.asked = []
    const when = { holding: claim.id }
    const started = isStored(await putOne(store, putting('trips', '1', { ...when, absent: true }, { ttlMs: 60_000 })))
    isStored(await putOne(store, putting('trips', '2', { ...when, version: started.version }, { ttlMs: 60_000 })))
    isStored(await putOne(store, putting('trips', '3', when)))
    await read(store, 'trips')
    expect(client.asked).toEqual(['Txn', 'Txn', 'Txn', 'Txn'])
  })

  test('records of about one ttl share a lease, which lives for longer than the ttl', async () => {
    const { store } = await scene.open()
    const ttlMs = 600_000
    await store.put([0, 1, 2].map((index) => putting(`shared ${index}`, 'x', {}, { ttlMs: ttlMs - index })))
    const leases = await Promise.all([0, 1, 2].map((index) => leaseOf(`shared ${index}`)))
    expect(new Set(leases).size).toBe(1)
    const { leftSeconds } = await scene.direct.timeOf(leases[0] as bigint)
    expect(leftSeconds * 1000).toBeGreaterThan(ttlMs)
    isStored(await putOne(store, putting('kept', 'for good')))
    expect(await leaseOf('kept')).toBe(0n)
  })

  test('a lease that another client has revoked is not used again', async () => {
    const { store } = await scene.open()
    const put = (text: string): ReturnType<typeof putOne> =>
      putOne(store, putting('revoked', text, {}, { ttlMs: 600_000 }))
    isStored(await put('first'))
    await scene.direct.revoke((await leaseOf('revoked')) as bigint)
    expect(await textOf(store, 'revoked')).toBe(null)
    isStored(await put('second'))
    expect(await textOf(store, 'revoked')).toBe('second')
  })

  test('a record of a newer version, or of another program, is refused and left alone', async () => {
    const { store } = await scene.open()
    for (const value of [Buffer.concat([Buffer.from([2]), Buffer.alloc(40)]), Buffer.from('hello')]) {
      await scene.direct.txn({ success: [{ put: { key: 'holdfast/record/odd', value, lease: 0n } }] })
      // What was asked for in the same batch is answered.
      expect(await store.get(['none', 'odd'])).toMatchObject([
        { state: 'read', stored: { key: 'none', value: null } },
        { state: 'failed', error: { transient: false, outcome: 'not-applied' } },
      ])
      expect(await store.put([removing('odd')])).toMatchObject([{ state: 'failed', error: { transient: false } }])
      expect((await scene.direct.range({ key: 'holdfast/record/odd' })).kvs[0]?.value).toEqual(value)
    }
  })
})
