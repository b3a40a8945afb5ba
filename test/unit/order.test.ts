/** The lock-order checker: what it reports, once and with both stacks, and what it leaves alone. */
import { AsyncResource } from 'node:async_hooks'
import { describe, expect, test } from 'vitest'
import type { OrderReport } from '../../src/core/order.ts'
import { published } from './published.ts'
import { gate, inMemory, type MemoryWorld, settled } from './world.ts'

function checked(): MemoryWorld & { reports: OrderReport[] } {
  const reports: OrderReport[] = []
  return { ...inMemory({ checkOrder: (report) => reports.push(report) }), reports }
}

/** Take `keys` one inside the other, with `using`. */
async function nestedUsing({ locks }: MemoryWorld, ...[key, ...rest]: readonly string[]): Promise<void> {
  if (key !== undefined) await locks.mutex(key).using(() => nestedUsing({ locks } as MemoryWorld, ...rest))
}

/** Take `keys` one after the other, hold them all, release them all. */
async function togetherAcquired({ locks }: MemoryWorld, ...keys: readonly string[]): Promise<void> {
  const leases = []
  for (const key of keys) leases.push(await locks.mutex(key).acquire())
  for (const lease of leases) await lease.release()
}

describe('reported', () => {
  test('two keys in opposite orders, before they ever deadlock, with both stacks', async () => {
    const world = checked()
    const thisWay = (): Promise<void> => togetherAcquired(world, 'a', 'b')
    const thatWay = (): Promise<void> => nestedUsing(world, 'b', 'a')
    await thisWay()
    expect(world.reports).toEqual([])
    await thatWay()
    expect(world.reports).toMatchObject([{ first: 'b', second: 'a' }])
    const { message } = world.reports[0] as OrderReport
    expect(message).toContain("'b' then 'a' here, but 'a' then 'b' elsewhere")
    const [here, elsewhere] = message.split('elsewhere:')
    expect(here).toContain('nestedUsing')
    expect(elsewhere).toContain('togetherAcquired')
  })

  test('once, however often it happens', async () => {
    const world = checked()
    for (let time = 0; time < 3; time += 1) {
      await nestedUsing(world, 'a', 'b')
      await nestedUsing(world, 'b', 'a')
    }
    expect(world.reports).toHaveLength(1)
  })

  test('a circle of three', async () => {
    const world = checked()
    await nestedUsing(world, 'a', 'b')
    await nestedUsing(world, 'b', 'c')
    expect(world.reports).toEqual([])
    await nestedUsing(world, 'c', 'a')
    expect(world.reports).toMatchObject([
      { first: 'c', second: 'a', message: expect.stringContaining("'a' then 'b' then 'c' elsewhere") },
    ])
  })

  test('not again for two keys that were reported as part of a circle', async () => {
    const world = checked()
    await nestedUsing(world, 'a', 'b')
    await nestedUsing(world, 'b', 'c')
    await nestedUsing(world, 'c', 'a')
    await nestedUsing(world, 'a', 'c')
    expect(world.reports).toHaveLength(1)
  })

  test('on the channel, and as a warning of the process when no function is given', async () => {
    using events = published('inversion')
    const warned = new Promise<Error & { code?: string }>((resolve) => process.once('warning', resolve))
    const world = inMemory({ checkOrder: true })
    await nestedUsing(world, 'a', 'b')
    await nestedUsing(world, 'b', 'a')
    const warning = await warned
    expect(warning.code).toBe('HOLDFAST_LOCK_ORDER')
    expect(events.of('inversion')).toMatchObject([{ first: 'b', second: 'a', message: warning.message }])
  })
})

describe('not reported', () => {
  test('keys taken one after the other, not inside one another', async () => {
    const world = checked()
    await nestedUsing(world, 'a')
    await nestedUsing(world, 'b')
    await nestedUsing(world, 'a')
    await togetherAcquired(world, 'b')
    await togetherAcquired(world, 'a')
    expect(world.reports).toEqual([])
  })

  test('the same order again and again', async () => {
    const world = checked()
    for (let time = 0; time < 3; time += 1) await nestedUsing(world, 'a', 'b', 'c')
    expect(world.reports).toEqual([])
  })

  test('keys taken with `all`, in whatever order they are written', async () => {
    const world = checked()
    const { locks } = world
    for (const keys of [
      ['a', 'b'],
      ['b', 'a'],
    ]) {
      const all = locks.all(keys.map((key) => locks.mutex(key)))
      await all.using(() => {})
      // By other code: what holds b and asks for a and b is rightly reported.
      const b = await new AsyncResource('stranger').runInAsyncScope(() => locks.mutex('b').acquire())
      const waiting = all.acquire()
      await settled()
      await b.release()
      await (await waiting).release()
    }
    expect(world.reports).toEqual([])
  })

  test('siblings that hold different keys at the same time', async () => {
    const world = checked()
    const done = gate()
    const holding = (key: string): Promise<void> => world.locks.mutex(key).using(() => done.opened)
    const siblings = [holding('a'), holding('b')]
    await settled()
    siblings.push(holding('c'))
    await settled()
    done.open()
    await Promise.all(siblings)
    await nestedUsing(world, 'c', 'b', 'a')
    await nestedUsing(world, 'c', 'a')
    expect(world.reports).toEqual([])
  })

  test('what a task does after it has started another one that still holds', async () => {
    const world = checked()
    const done = gate()
    const background = world.locks.mutex('a').using(() => done.opened)
    await settled()
    // This is not inside `a`: it only started the work that is.
    await nestedUsing(world, 'b')
    done.open()
    await background
    await nestedUsing(world, 'b', 'a')
    expect(world.reports).toEqual([])
  })

  test('anything, unless asked for', async () => {
    using events = published('inversion')
    const world = inMemory()
    await nestedUsing(world, 'a', 'b')
    await nestedUsing(world, 'b', 'a')
    expect(events.names).toEqual([])
  })
})
