/** What entries are called in etcd: one name for all that a process does in empty lines, and never the wrong one. */

import { expect, test } from 'vitest'
import { newClaim } from '../claims.ts'
import { findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

await describeServer('names in etcd', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  test('a lock that is taken again and again has one key, and tokens that rise', async () => {
    const engine = await scene.open()
    const keys = new Set<string>()
    let last = 0n
    for (let round = 0; round < 20; round += 1) {
      const claim = newClaim('again', { wait: round % 2 === 0 })
      const [standing] = await engine.enter([claim])
      const token = standing?.state === 'held' ? (standing.token ?? 0n) : 0n
      expect(token).toBeGreaterThan(last)
      last = token
      for (const key of await scene.keysOf('again')) keys.add(key)
      expect(await engine.leave([claim])).toEqual([true])
    }
    expect(keys.size).toBe(1)
  })

  test('an entry that was evicted, and leaves late, does not take out the next entry of its process', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const [evicted, next] = [newClaim('evicted'), newClaim('evicted')]
    const [first] = await engine.enter([evicted])
    expect(await other.evict('evicted', first?.state === 'held' ? (first.token ?? 0n) : 0n, 'now')).toBe(true)
    const [second] = await engine.enter([next])
    expect(second?.state).toBe('held')
    expect(await engine.leave([evicted])).toEqual([false])
    expect((await engine.renew([next]))[0]).toMatchObject({ state: 'held' })
    expect((await engine.inspect('evicted')).entries.map(({ id }) => id)).toEqual([next.id])
  })

  test('an entry is one entry for every client, whatever it is called: entered again, renewed, left', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const claim = newClaim('shared id')
    const [standing] = await engine.enter([claim])
    expect((await other.enter([claim]))[0]).toEqual({ ...standing, heldForMs: expect.any(Number) })
    expect(await scene.keysOf('shared id')).toHaveLength(1)
    expect((await engine.renew([claim]))[0]).toEqual({ ...standing, heldForMs: expect.any(Number) })
    expect((await other.enter([{ ...claim, wait: false }]))[0]).toMatchObject({ state: 'held' })
    const stranger = await scene.open()
    expect((await stranger.renew([claim]))[0]).toMatchObject({ state: 'held' })
    expect(await (await scene.open()).leave([claim])).toEqual([true])
    expect(await scene.keysOf('shared id')).toEqual([])
  })

  test('a client that knows an entry by the name of another client does not take out what that client calls so later', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const [claim, next] = [newClaim('their name'), newClaim('their name')]
    await other.enter([claim])
    expect((await engine.renew([claim]))[0]).toMatchObject({ state: 'held' })
    await other.leave([claim])
    await other.enter([next])
    expect(await engine.leave([claim])).toEqual([false])
    expect((await engine.inspect('their name')).entries.map(({ id }) => id)).toEqual([next.id])
  })

  test('an entry that another client has entered anew is found where it is now', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const [claim, first] = [newClaim('anew'), newClaim('anew')]
    await engine.enter([claim])
    await other.leave([claim])
    await other.enter([first])
    await other.enter([claim])
    expect((await engine.renew([claim]))[0]).toMatchObject({ state: 'waiting', ahead: 1 })
    await other.leave([claim])
    await other.enter([claim])
    expect(await engine.leave([claim])).toEqual([true])
    expect((await engine.inspect('anew')).entries.map(({ id }) => id)).toEqual([first.id])
  })

  test('after a leave nothing is left of an eviction', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const claim = newClaim('leaves early')
    const [standing] = await engine.enter([claim])
    expect(await other.evict(claim.key, standing?.state === 'held' ? (standing.token ?? 0n) : 0n, 'expire')).toBe(true)
    expect(await engine.leave([claim])).toEqual([true])
    expect((await engine.enter([claim]))[0]).toMatchObject({ state: 'held' })
  })
})
