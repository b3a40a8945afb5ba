/** Batches: many askings, one call; and what a call that is broken does to the others. */
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import { batchWorld, keysOf, TIMEOUT } from './batch-world.ts'
import { settled } from './world.ts'

describe('what goes out together', () => {
  test('what one turn asks for, promise jobs included, is one call', async () => {
    const it = batchWorld()
    it.ask('a')
    await Promise.resolve()
    await Promise.resolve().then(() => it.ask('b'))
    it.ask('c')
    await settled()
    expect(keysOf(it)).toEqual(['a b c'])
  })

  test('what is asked while a call is in flight goes out when it is answered, in the order of asking', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    it.ask('b')
    await settled()
    it.ask('c', 'a')
    await settled()
    expect(keysOf(it)).toEqual(['a'])
    await it.calls[0]?.answer('yes')
    expect(keysOf(it)).toEqual(['a', 'b c a'])
  })

  test('a single asking goes out in its own turn: it pays no delay', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    expect(keysOf(it)).toEqual(['a'])
    expect(it.clock.now()).toBe(0)
  })

  test('no call has more items than the engine takes', async () => {
    const it = batchWorld({ batchLimit: 2 })
    it.ask('a', 'b', 'c', 'd', 'e')
    for (let call = 0; call < 3; call += 1) {
      await settled()
      await it.calls[call]?.answer(...(it.calls[call]?.keys ?? []).map(() => 'yes'))
    }
    expect(keysOf(it)).toEqual(['a b', 'c d', 'e'])
    expect(it.told).toEqual(['a: yes', 'b: yes', 'c: yes', 'd: yes', 'e: yes'])
  })

  test('no call has more items of one key than the engine takes, and their order is kept', async () => {
    const it = batchWorld({ itemsPerKey: 2, splitFrom: 2 })
    it.ask('a', 'a', 'b', 'a', 'c', 'a', 'a', 'b')
    for (let call = 0; call < 3; call += 1) {
      await settled()
      expect(it.calls).toHaveLength(call + 1)
      await it.calls[call]?.answer(...(it.calls[call]?.keys ?? []).map(() => 'yes'))
    }
    expect(keysOf(it)).toEqual(['a a b c b', 'a a', 'a'])
  })

  test('what is no longer wanted is dropped, and does not take up room', async () => {
    const it = batchWorld({ batchLimit: 2 })
    for (const wanted of [false, true, false, true]) it.batch.add({ key: String(wanted), wanted })
    await settled()
    expect(keysOf(it)).toEqual(['true true'])
  })

  test('when only unwanted things were asked for, no call is made', async () => {
    const it = batchWorld()
    it.batch.add({ key: 'a', wanted: false })
    await settled()
    expect(it.calls).toEqual([])
    it.ask('b')
    await settled()
    expect(keysOf(it)).toEqual(['b'])
  })

  test('each call knows when it was sent, and which of two came first even where the clock does not', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    await it.calls[0]?.answer('yes')
    it.ask('b')
    await settled()
    expect(it.sent).toEqual([
      { at: 0, sequence: 1 },
      { at: 0, sequence: 2 },
    ])
  })
})

describe('where calls overlap', () => {
  const names = (count: number, letter = 'k'): string[] =>
    Array.from({ length: count }, (_, index) => `${letter}${index}`)
  const sizes = (it: ReturnType<typeof batchWorld>): number[] => it.calls.map(({ keys }) => keys.length)

  test('a large batch goes out in two halves at once, so that both sides are busy', async () => {
    const it = batchWorld({ splitFrom: 32 })
    it.ask(...names(100))
    await settled()
    expect(sizes(it)).toEqual([50, 50])
    expect(it.calls.flatMap(({ keys }) => keys)).toEqual(names(100))
  })

  test('a small one does not, and little that is asked behind one call waits for its answer', async () => {
    const it = batchWorld({ splitFrom: 32 })
    it.ask(...names(63))
    await settled()
    it.ask(...names(31, 'l'))
    await settled()
    expect(sizes(it)).toEqual([63])
    await it.calls[0]?.answer(...names(63))
    expect(sizes(it)).toEqual([63, 31])
  })

  test('two halves are all: a third batch waits for one of them', async () => {
    const it = batchWorld({ splitFrom: 32 })
    it.ask(...names(100))
    await settled()
    it.ask(...names(100, 'l'))
    await settled()
    expect(sizes(it)).toEqual([50, 50])
    await it.calls[0]?.answer(...names(50))
    expect(sizes(it)).toEqual([50, 50, 100])
  })

  test('the order on one key is kept: what the first half asks for is not asked by the second', async () => {
    const it = batchWorld({ splitFrom: 32 })
    it.ask(...names(40), ...names(40, 'l'))
    it.ask('k0', 'l0', 'k1')
    await settled()
    expect(it.calls.map(({ keys }) => keys)).toEqual([
      [...names(40), 'l0', 'l1', 'k0', 'l0', 'k1'],
      names(40, 'l').slice(2),
    ])
  })

  test('a hot key is not halved: behind the first half, the second would have to wait for its answer', async () => {
    const it = batchWorld({ splitFrom: 32 })
    it.ask(...Array.from({ length: 90 }, () => 'hot'))
    await settled()
    expect(sizes(it)).toEqual([90])
  })
})

describe('a call that is broken', () => {
  test('rejected by the engine: its own word on the outcome counts', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    await it.calls[0]?.fail(new EngineError('scripted', 'refused', { outcome: 'not-applied' }))
    expect(it.told).toEqual(['a failed: not-applied'])
  })

  test('rejected with anything else: unknown', async () => {
    for (const error of [new Error('boom'), 'boom', undefined]) {
      const it = batchWorld()
      it.ask('a')
      await settled()
      await it.calls[0]?.fail(error)
      expect(it.told).toEqual(['a failed: unknown'])
    }
  })

  test('thrown before it was made: unknown, and the next one goes out', async () => {
    let first = true
    const it = batchWorld({
      call: (items) => {
        if (!first) return Promise.resolve(items.map(() => 'yes'))
        first = false
        throw new TypeError('not connected')
      },
    })
    it.ask('a')
    await settled()
    it.ask('b')
    await settled()
    expect(it.told).toEqual(['a failed: unknown', 'b: yes'])
  })

  test('answered with another number of answers, or with none at all: unknown for each of its items', async () => {
    for (const answers of [[], ['yes', 'yes', 'yes'], undefined]) {
      const it = batchWorld({ call: () => Promise.resolve(answers as readonly string[]) })
      it.ask('a', 'b')
      await settled()
      expect(it.told).toEqual(['a failed: unknown', 'b failed: unknown'])
    }
  })

  test('what waited behind it goes out', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    it.ask('b')
    await settled()
    await it.calls[0]?.fail(new Error('boom'))
    expect(keysOf(it)).toEqual(['a', 'b'])
  })
})

describe('drained', () => {
  test('is at once when there is nothing', async () => {
    await batchWorld().batch.drained()
  })

  test('waits for what is queued and for what is in flight', async () => {
    const it = batchWorld()
    let drained = false
    it.ask('a')
    void it.batch.drained().then(() => {
      drained = true
    })
    await settled()
    it.ask('b')
    await it.calls[0]?.answer('yes')
    expect(drained).toBe(false)
    await it.clock.advance(TIMEOUT)
    expect(drained, 'a call without an answer is over when its time is').toBe(true)
  })

  test('comes also when all that was queued was dropped', async () => {
    const it = batchWorld()
    it.batch.add({ key: 'a', wanted: false })
    await it.batch.drained()
  })

  test('nothing keeps the process alive then, and stopping takes the last timer', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    expect(it.clock.alive).toBe(1)
    await it.calls[0]?.answer('yes')
    expect(it.clock.alive).toBe(0)
    it.batch.stop()
    expect(it.clock.timers).toBe(0)
  })
})
