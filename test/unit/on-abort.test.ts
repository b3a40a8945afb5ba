/**
 * A signal that lives as long as the program is given to one wait after the other. Each wait puts one listener on it,
 * and takes it off when it ends: nothing is left behind. (`AbortSignal.any` leaves something behind, and no listener.)
 */
import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import type { Lease } from '../../src/core/lease.ts'
import { inMemory, settled, TTL, watched } from './world.ts'

const listeners = (signal: AbortSignal): number => getEventListeners(signal, 'abort').length

test('several locks at once', async () => {
  const { locks } = inMemory()
  const { signal } = new AbortController()
  const held = await locks.mutex('b').acquire()
  const all = watched(locks.all([locks.mutex('a'), locks.mutex('b')]).acquire({ signal }))
  await settled()
  expect(listeners(signal), 'while it waits').toBe(1)
  await held.release()
  await settled()
  expect(all.value.held).toBe(true)
  expect(listeners(signal)).toBe(0)
})

test('several locks at once, of which one is lost meanwhile', async () => {
  const { clock, locks } = inMemory()
  const { signal } = new AbortController()
  await locks.mutex('b', { ttl: '1h' }).acquire()
  const all = watched(locks.all([locks.mutex('a'), locks.mutex('b')]).acquire({ signal }))
  await settled()
  const [entry] = (await locks.inspect('a')).entries
  await locks.evict('a', entry?.token as bigint)
  await clock.advance(TTL)
  expect(all.error).toMatchObject({ code: 'LEASE_LOST', key: 'a' })
  expect(listeners(signal)).toBe(0)
})

test('a nested lease', async () => {
  const { locks } = inMemory()
  const { signal } = new AbortController()
  const mutex = locks.mutex('a')
  const outer = await mutex.acquire()
  const first = await mutex.acquire({ within: outer, signal })
  const second = watched<Lease>(mutex.acquire({ within: outer, signal }))
  await settled()
  expect([second.state, listeners(signal)]).toEqual(['pending', 1])
  await first.release()
  await settled()
  expect([second.state, listeners(signal)]).toEqual(['resolved', 0])
})

test('a watch, and an observer of an election', async () => {
  const { locks } = inMemory()
  const { signal } = new AbortController()
  for (const watch of [locks.watch('a', { signal }), locks.election('a').observe({ signal })]) {
    expect(listeners(signal), 'before the first look').toBe(0)
    await watch.next()
    expect(listeners(signal), 'while it watches').toBe(1)
    await watch.return()
    expect(listeners(signal)).toBe(0)
  }
})
