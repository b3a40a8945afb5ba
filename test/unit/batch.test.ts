/** Batches: many askings, one call; and what a call that is slow, late, broken or never answered does to the others. */
import { describe, expect, test } from 'vitest'
import { Batch, type Sent, type Verb } from '../../src/core/batch.ts'
import { EngineError } from '../../src/core/errors.ts'
import { type CountingClock, countingClock, settled } from './world.ts'

interface Item {
  readonly key: string
  readonly wanted?: boolean
}

interface Call {
  readonly keys: readonly string[]
  readonly signal: AbortSignal
  answer(...answers: readonly string[]): Promise<void>
  fail(error: unknown): Promise<void>
}

interface World {
  readonly clock: CountingClock
  readonly batch: Batch<Item, string>
  readonly calls: readonly Call[]
  /** `a: yes`, `b failed: ...` in the order in which the batch tells. */
  readonly told: readonly string[]
  readonly sent: readonly Sent[]
  ask(...keys: readonly string[]): void
}

const TIMEOUT = 1000

function world(overrides: Partial<Verb<Item, string>> = {}): World {
  const clock = countingClock()
  const calls: Call[] = []
  const told: string[] = []
  const sends: Sent[] = []
  let order = 0
  const verb: Verb<Item, string> = {
    name: 'enter',
    engine: 'scripted',
    batchLimit: 100,
    call: (items, signal) =>
      new Promise((resolve, reject) => {
        calls.push({
          keys: items.map(({ key }) => key),
          signal,
          answer: (...answers) => {
            resolve(answers)
            return settled()
          },
          fail: (error) => {
            reject(error)
            return settled()
          },
        })
      }),
    timeoutMs: () => TIMEOUT,
    sending: (item, sent) => {
      sends.push(sent)
      return item.wanted ?? true
    },
    answered: ({ key }, answer) => told.push(`${key}: ${answer}`),
    failed: ({ key }, { outcome }) => told.push(`${key} failed: ${outcome}`),
    ...overrides,
  }
  const batch = new Batch(verb, clock, () => {
    order += 1
    return order
  })
  const ask = (...keys: readonly string[]): void => {
    for (const key of keys) batch.add({ key })
  }
  return { clock, batch, calls, told, sent: sends, ask }
}

const keysOf = ({ calls }: World): readonly string[] => calls.map(({ keys }) => keys.join(' '))

describe('what goes out together', () => {
  test('what one turn asks for, promise jobs included, is one call', async () => {
    const it = world()
    it.ask('a')
    await Promise.resolve()
    await Promise.resolve().then(() => it.ask('b'))
    it.ask('c')
    await settled()
    expect(keysOf(it)).toEqual(['a b c'])
  })

  test('what is asked while a call is in flight goes out when it is answered, in the order of asking', async () => {
    const it = world()
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
    const it = world()
    it.ask('a')
    await settled()
    expect(keysOf(it)).toEqual(['a'])
    expect(it.clock.now()).toBe(0)
  })

  test('no call has more items than the engine takes', async () => {
    const it = world({ batchLimit: 2 })
    it.ask('a', 'b', 'c', 'd', 'e')
    for (let call = 0; call < 3; call += 1) {
      await settled()
      await it.calls[call]?.answer(...(it.calls[call]?.keys ?? []).map(() => 'yes'))
    }
    expect(keysOf(it)).toEqual(['a b', 'c d', 'e'])
    expect(it.told).toEqual(['a: yes', 'b: yes', 'c: yes', 'd: yes', 'e: yes'])
  })

  test('what is no longer wanted is dropped, and does not take up room', async () => {
    const it = world({ batchLimit: 2 })
    for (const wanted of [false, true, false, true]) it.batch.add({ key: String(wanted), wanted })
    await settled()
    expect(keysOf(it)).toEqual(['true true'])
  })

  test('when only unwanted things were asked for, no call is made', async () => {
    const it = world()
    it.batch.add({ key: 'a', wanted: false })
    await settled()
    expect(it.calls).toEqual([])
    it.ask('b')
    await settled()
    expect(keysOf(it)).toEqual(['b'])
  })

  test('each call knows when it was sent, and which of two came first even where the clock does not', async () => {
    const it = world()
    it.ask('a')
    await settled()
    await it.calls[0]?.answer('yes')
    it.ask('b')
    await settled()
    expect(it.sent).toEqual([
      { at: 0, order: 1 },
      { at: 0, order: 2 },
    ])
  })
})

describe('a call that takes long', () => {
  test('does not hold up other keys once it is slow; its own keys wait for it', async () => {
    const it = world()
    it.ask('a')
    await settled()
    it.ask('b', 'a', 'c')
    await it.clock.advance(49)
    expect(keysOf(it)).toEqual(['a'])
    await it.clock.advance(1)
    expect(keysOf(it)).toEqual(['a', 'b c'])
    await it.calls[1]?.answer('yes', 'yes')
    expect(keysOf(it)).toEqual(['a', 'b c'])
    await it.calls[0]?.answer('yes')
    expect(keysOf(it)).toEqual(['a', 'b c', 'a'])
  })

  test('at most four calls are unanswered at once', async () => {
    const it = world()
    for (const key of ['a', 'b', 'c', 'd', 'e']) {
      it.ask(key)
      await it.clock.advance(50)
    }
    expect(keysOf(it)).toEqual(['a', 'b', 'c', 'd'])
    await it.calls[2]?.answer('yes')
    expect(keysOf(it)).toEqual(['a', 'b', 'c', 'd', 'e'])
  })

  test('times out as an unknown outcome, and its signal is aborted', async () => {
    const it = world()
    it.ask('a', 'b')
    await it.clock.advance(TIMEOUT - 1)
    expect(it.told).toEqual([])
    expect(it.calls[0]?.signal.aborted).toBe(false)
    await it.clock.advance(1)
    expect(it.told).toEqual(['a failed: unknown', 'b failed: unknown'])
    expect(it.calls[0]?.signal.reason).toMatchObject({ message: 'scripted: no answer to enter within 1000 ms' })
  })

  test('and is answered after that is still heard: it is true, only late', async () => {
    const it = world()
    it.ask('a')
    await it.clock.advance(TIMEOUT)
    it.ask('b')
    await settled()
    await it.calls[0]?.answer('yes')
    await it.calls[1]?.answer('yes')
    expect(it.told).toEqual(['a failed: unknown', 'a: yes', 'b: yes'])
  })

  test('and fails after that is not told twice', async () => {
    const it = world()
    it.ask('a')
    await it.clock.advance(TIMEOUT)
    await it.calls[0]?.fail(new Error('late'))
    expect(it.told).toEqual(['a failed: unknown'])
  })

  test('lets its own keys go on once it has timed out', async () => {
    const it = world()
    it.ask('a')
    await settled()
    it.ask('a')
    await it.clock.advance(TIMEOUT)
    expect(keysOf(it)).toEqual(['a', 'a'])
  })

  test('aborts nothing that an answered call has left listening', async () => {
    const it = world()
    it.ask('a')
    await settled()
    let aborted = false
    it.calls[0]?.signal.addEventListener('abort', () => {
      aborted = true
    })
    await it.calls[0]?.answer('yes')
    it.ask('b')
    await it.clock.advance(TIMEOUT)
    expect(it.calls[1]?.signal.aborted).toBe(true)
    expect(aborted).toBe(false)
  })

  test('a call whose time-out is a fraction ends', async () => {
    const it = world({ timeoutMs: () => 33.333333333333336 })
    await it.clock.advance(8.2)
    it.ask('a')
    let turns = 0
    const { timer } = it.clock
    // 8.2 + 33.3... - 8.2 is less than 33.3...: whoever compares the age waits for a moment that never comes.
    Object.assign(it.clock, {
      timer: (ms: number, fire: () => void) => {
        turns += 1
        if (turns > 100) throw new Error('the same moment, again and again')
        return timer(ms, fire)
      },
    })
    await it.clock.advance(100)
    expect(it.told).toEqual(['a failed: unknown'])
  })
})

describe('a call that is broken', () => {
  test('rejected by the engine: its own word on the outcome counts', async () => {
    const it = world()
    it.ask('a')
    await settled()
    await it.calls[0]?.fail(new EngineError('scripted', 'refused', { outcome: 'not-applied' }))
    expect(it.told).toEqual(['a failed: not-applied'])
  })

  test('rejected with anything else: unknown', async () => {
    for (const error of [new Error('boom'), 'boom', undefined]) {
      const it = world()
      it.ask('a')
      await settled()
      await it.calls[0]?.fail(error)
      expect(it.told).toEqual(['a failed: unknown'])
    }
  })

  test('thrown before it was made: unknown, and the next one goes out', async () => {
    let first = true
    const it = world({
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
      const it = world({ call: () => Promise.resolve(answers as readonly string[]) })
      it.ask('a', 'b')
      await settled()
      expect(it.told).toEqual(['a failed: unknown', 'b failed: unknown'])
    }
  })

  test('what waited behind it goes out', async () => {
    const it = world()
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
    await world().batch.drained()
  })

  test('waits for what is queued and for what is in flight', async () => {
    const it = world()
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
    const it = world()
    it.batch.add({ key: 'a', wanted: false })
    await it.batch.drained()
  })

  test('nothing keeps the process alive then, and stopping takes the last timer', async () => {
    const it = world()
    it.ask('a')
    await settled()
    expect(it.clock.alive).toBe(1)
    await it.calls[0]?.answer('yes')
    expect(it.clock.alive).toBe(0)
    it.batch.stop()
    expect(it.clock.timers).toBe(0)
  })
})
