/**
 * Keys in a line that are no entries of ours: of `etcdctl lock` under our prefix, or of a newer Holdfast. An entry
 * behind such a key is refused, and leaves nothing behind; no other entry is concerned.
 */
import { expect, test, vi } from 'vitest'
import type { LineSummary } from '../../src/core/engine.ts'
import { newClaim } from '../claims.ts'
import { findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const REFUSED = { state: 'failed', error: { outcome: 'not-applied', transient: false } }

await describeServer('strangers in lines of etcd', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  async function put(key: string, value = ''): Promise<void> {
    await scene.direct.txn({ success: [{ put: { key, value, lease: 0n } }] })
  }

  test.each([
    { wait: true, value: '' },
    { wait: false, value: '' },
    { wait: true, value: '{"v":2,"weight":1,"limit":1}' },
  ])('an enter behind one is refused, and leaves nothing in the line: $wait, $value', async ({ wait, value }) => {
    const engine = await scene.open()
    const key = `behind ${wait} ${value.length}`
    const stranger = `holdfast/line/${key}/6f81`
    await put(stranger, value)
    const claim = newClaim(key, { wait })
    expect((await engine.enter([claim]))[0]).toMatchObject(REFUSED)
    expect(await scene.keysOf(key)).toEqual([stranger])
    // As the core does, should it not be sure.
    expect(await engine.leave([claim])).toEqual([false])
  })

  test('one that comes behind a waiter concerns neither the waiter nor the other entries of its beat', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const news = vi.fn()
    await engine.subscribe(news)
    const [holder, waiter] = [newClaim('before'), newClaim('before')]
    const neighbours = Array.from({ length: 50 }, (_, index) => newClaim(`neighbour ${index}`))
    await other.enter([holder])
    await engine.enter([waiter, ...neighbours])
    await put('holdfast/line/before/6f81')
    const states = (await engine.renew([waiter, ...neighbours])).map(({ state }) => state)
    expect(states).toEqual(['waiting', ...neighbours.map(() => 'held')])
    await other.leave([holder])
    const told = { key: 'before', id: waiter.id, standing: expect.objectContaining({ state: 'held' }) }
    await vi.waitFor(() => expect(news).toHaveBeenCalledWith(told), LIMIT)
  })

  test('one in the place of the holder refuses the renewals of its waiters, and no others', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const [holder, waiter] = [newClaim('in front'), newClaim('in front')]
    const neighbours = Array.from({ length: 50 }, (_, index) => newClaim(`beside ${index}`))
    await other.enter([holder])
    await engine.enter([waiter, ...neighbours])
    const [first] = await scene.keysOf('in front')
    // It keeps its place in line: that is when the key was created.
    await put(first as string)
    const [standing, ...rest] = await engine.renew([waiter, ...neighbours])
    expect(standing).toMatchObject(REFUSED)
    expect(rest.map(({ state }) => state)).toEqual(neighbours.map(() => 'held'))
  })

  test('leaving such a line does not fail the other leaves of its batch', async () => {
    const engine = await scene.open()
    const neighbour = newClaim('left beside')
    await put('holdfast/line/left/6f81')
    await engine.enter([neighbour])
    expect(await engine.leave([newClaim('left'), neighbour])).toEqual([false, true])
  })

  test('they are shown in their line, and hide no other line', async () => {
    const engine = await scene.open()
    const [holder, waiter, beside] = [newClaim('seen a'), newClaim('seen a'), newClaim('seen b')]
    await engine.enter([holder, beside])
    await engine.enter([waiter])
    await put('holdfast/line/seen a/6f81')
    await put('holdfast/line/seen c/6f81', '{"v":2,"weight":1,"limit":1}')
    await put('holdfast/line/seen without a line')
    await put('holdfast/line/seen d/e/6f81')
    const [first, second, third] = (await engine.inspect('seen a')).entries
    expect([first?.id, second?.id]).toEqual([holder.id, waiter.id])
    const stranger = { id: '', state: 'waiting', token: null, remainingMs: Number.POSITIVE_INFINITY }
    expect(third).toMatchObject({ ...stranger, holder: 'a program without Holdfast' })
    expect((await engine.inspect('seen c')).entries).toMatchObject([
      { ...stranger, state: 'held', holder: 'a newer Holdfast' },
    ])
    const listed: LineSummary[] = []
    for await (const line of engine.list('seen ')) listed.push(line)
    expect(listed).toEqual([
      { key: 'seen a', held: 1, waiting: 2 },
      { key: 'seen b', held: 1, waiting: 0 },
      { key: 'seen c', held: 1, waiting: 0 },
    ])
  })
})
