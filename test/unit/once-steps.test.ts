/** `once` on the memory engine: no step that is done is forgotten, whichever answers are lost and in whatever order. */
import { afterEach, describe, expect, test } from 'vitest'
import { faulty } from '../../conformance/faulty.ts'
import { EngineError, LeaseLostError } from '../../src/core/errors.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { type Attempt, once, ReplayedFailureError } from '../../src/recipes/once/index.ts'
import { fakeClock } from '../../src/testing.ts'
import { closeAll, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

async function world() {
  const clock = fakeClock()
  const server = new MemoryServer({ clock })
  const engine = faulty(memory({ server }))
  const options = { clock, ttl: '3s', callTimeout: '2s' } as const
  const locks = locksOn(engine, options)
  const pay = once(locks, { crashed: 'ask', wait: '20s' })
  const other = once(locksOn(memory({ server }), options), { crashed: 'ask', wait: '20s' })
  await pay.run('warm', () => 1)
  await turns()
  const charges: number[] = []
  const charge = (attempt: Attempt): Promise<number> =>
    attempt.step('charge', () => {
      charges.push(attempt.number)
      return attempt.number
    })
  return { clock, engine, locks, pay, other, charge, charges }
}

describe('a step that is done, and of which it is not known whether it was stored,', () => {
  test.each([
    ['was stored, and the answer was late', 'hold reply'],
    ['was stored late', 'hold request'],
  ] as const)('is not done again after a throw (it %s)', async (_, fault) => {
    const { clock, engine, pay, other, charge, charges } = await world()
    const held = engine.next('put', fault)
    const failing = pay.run('a', charge)
    failing.catch(() => {})
    await held.reached
    await clock.advance('2500ms')
    await expect(failing).rejects.toThrow(EngineError)
    held.release()
    await turns()
    expect((await other.run('a', charge)).value).toBe(1)
    expect(charges).toEqual([1])
  })

  test('is in what the next step stores', async () => {
    const { clock, engine, pay, other, charge, charges } = await world()
    const held = engine.next('put', 'hold reply')
    const failing = pay.run('a', async (attempt) => {
      await charge(attempt).catch(() => {})
      await attempt.step('mail', () => 'sent')
      throw new Error('crash')
    })
    failing.catch(() => {})
    await held.reached
    await clock.advance('2500ms')
    await expect(failing).rejects.toThrow('crash')
    expect((await other.run('a', charge)).value).toBe(1)
    expect(charges).toEqual([1])
  })

  test('is stored, and not done again, when the same execution asks for it again', async () => {
    const { clock, engine, pay, other, charge, charges } = await world()
    const held = engine.next('put', 'hold request')
    const working = gate()
    const asked = pay.run('a', async (attempt) => {
      await charge(attempt).catch(() => {})
      const value = await charge(attempt)
      await working.opened
      return value
    })
    asked.catch(() => {})
    await held.reached
    await clock.advance('2500ms')
    // This process dies.
    engine.cut()
    await clock.advance('4s')
    expect((await other.run('a', { crashed: 'retry' }, charge)).value).toBe(1)
    expect(charges).toEqual([1])
  })

  test('is tried to be stored for as long as the lease lasts, after a throw', async () => {
    const { clock, engine, pay, other, charge, charges } = await world()
    const lost = [engine.next('put', 'hold request'), engine.next('putLeaving', 'hold request')]
    const failing = pay.run('a', charge)
    failing.catch(() => {})
    await clock.advance('2500ms')
    await lost[1]?.reached
    await clock.advance('2500ms')
    await expect(failing).rejects.toThrow(EngineError)
    expect((await other.run('a', charge)).value).toBe(1)
    expect(charges).toEqual([1])
  })

  test('is stored by an execution that has lost its lease, if no other one has begun', async () => {
    const { clock, engine, pay, other, charge, charges } = await world()
    const held = engine.next('put', 'hold request')
    const failing = pay.run('a', charge)
    failing.catch(() => {})
    await held.reached
    // It stands still for longer than its ttl.
    clock.stall('4s')
    await clock.advance('100ms')
    await expect(failing).rejects.toThrow(LeaseLostError)
    expect((await other.run('a', { crashed: 'retry' }, charge)).value).toBe(1)
    expect(charges).toEqual([1])
  })
})

describe('a throw', () => {
  test('beside a step that runs waits for it: the next execution does not do it at the same time, nor again', async () => {
    const { pay, other, charge, charges } = await world()
    const charged = gate()
    const failing = pay.run('a', (attempt) =>
      Promise.all([
        attempt.step('charge', async () => {
          charges.push(attempt.number)
          await charged.opened
          return attempt.number
        }),
        attempt.step('mail', () => Promise.reject(new Error('no mail'))),
      ]),
    )
    failing.catch(() => {})
    await turns()
    const next = other.run('a', charge)
    await turns()
    expect(charges).toEqual([1])
    charged.open()
    await expect(failing).rejects.toThrow('no mail')
    expect((await next).value).toBe(1)
    expect(charges).toEqual([1])
  })

  test('beside a step that runs lets no step begin behind it: the next execution would do it at the same time', async () => {
    const { pay, other, charge, charges } = await world()
    const reserved = gate()
    const failing = pay.run('a', (attempt) =>
      Promise.all([
        attempt.step('reserve', () => reserved.opened).then(() => charge(attempt)),
        Promise.reject(new Error('no mail')),
      ]),
    )
    failing.catch(() => {})
    await turns()
    reserved.open()
    await expect(failing).rejects.toThrow('no mail')
    expect((await other.run('a', charge)).value).toBe(2)
    expect(charges).toEqual([2])
  })

  test('beside a step that fails does not let it be tried again', async () => {
    const { pay, other, charge, charges } = await world()
    const refused = gate()
    const failing = pay.run('a', (attempt) =>
      Promise.all([
        attempt
          .step('charge', () => refused.opened.then(() => Promise.reject(new Error('try again'))))
          .catch(() => charge(attempt)),
        Promise.reject(new Error('no mail')),
      ]),
    )
    failing.catch(() => {})
    await turns()
    refused.open()
    await expect(failing).rejects.toThrow('no mail')
    await turns()
    expect(charges).toEqual([])
    expect((await other.run('a', charge)).value).toBe(2)
  })

  test('because of the end of a drain waits for a step that runs, and the next execution has its answer', async () => {
    const { clock, locks, pay, other, charge, charges } = await world()
    const charged = gate()
    const failing = pay.run('a', async (attempt) => {
      const asked = attempt.step('charge', async () => {
        charges.push(attempt.number)
        await charged.opened
        return attempt.number
      })
      const told = new Promise((_, reject) => {
        attempt.signal.addEventListener('abort', () => reject(attempt.signal.reason))
      })
      return Promise.race([asked, told])
    })
    failing.catch(() => {})
    await turns()
    const next = other.run('a', { crashed: 'retry' }, charge)
    await turns()
    const drained = locks.drain({ grace: '100ms' })
    await clock.advance('400ms')
    expect(charges).toEqual([1])
    charged.open()
    await expect(failing).rejects.toThrow(LeaseLostError)
    await drained
    expect((await next).value).toBe(1)
    expect(charges).toEqual([1])
  })

  test('beside a step that hangs waits for it as long as for a crash', async () => {
    const { clock, pay, other, charge } = await world()
    const failing = pay.run('a', (attempt) => {
      attempt.step('charge', () => new Promise(() => {})).catch(() => {})
      throw new Error('enough')
    })
    failing.catch(() => {})
    await clock.advance('3s')
    await expect(failing).rejects.toThrow('enough')
    expect((await other.run('a', charge)).value).toBe(2)
  })

  test('beside steps that leave no room in the record is given to its caller, and the steps are kept', async () => {
    const { pay, other, charges } = await world()
    const large = (attempt: Attempt): Promise<string> =>
      attempt.step('charge', () => {
        charges.push(attempt.number)
        return 'x'.repeat(65_300)
      })
    const failing = pay.run('a', async (attempt) => {
      await large(attempt)
      throw Object.assign(new Error('no mail '.repeat(100)), { fields: 'y'.repeat(5_000) })
    })
    await expect(failing).rejects.toThrow('no mail')
    expect((await other.run('a', async (attempt) => (await large(attempt)).length)).value).toBe(65_300)
    expect(charges).toEqual([1])
  })

  test('after a step whose answer cannot be stored is final, whatever the work has made of it', async () => {
    const { pay, other, charge, charges } = await world()
    const failing = pay.run('a', async (attempt) => {
      await attempt
        .step('charge', () => {
          charges.push(attempt.number)
          return 'x'.repeat(70_000)
        })
        .catch((cause: unknown) => {
          throw new Error('the payment failed', { cause })
        })
    })
    await expect(failing).rejects.toThrow('the payment failed')
    await expect(other.run('a', charge)).rejects.toThrow(ReplayedFailureError)
    expect(charges).toEqual([1])
  })

  test('that is final is tried to be stored for as long as the lease lasts', async () => {
    const { clock, engine, pay, other, charge } = await world()
    const held = engine.next('putLeaving', 'hold request')
    const failing = pay.run('a', (attempt) => Promise.reject(attempt.final(new Error('declined'))))
    failing.catch(() => {})
    await held.reached
    await clock.advance('2500ms')
    await expect(failing).rejects.toThrow('declined')
    await expect(other.run('a', charge)).rejects.toThrow(ReplayedFailureError)
  })
})

describe('the result is stored, and not forgotten,', () => {
  test('when a step that was not awaited is done while it is on its way', async () => {
    const { engine, pay, other } = await world()
    const mailed = gate()
    const held = engine.next('putLeaving', 'hold request')
    let ran = 0
    const work = (attempt: Attempt): string => {
      attempt.step('mail', () => mailed.opened).catch(() => {})
      ran += 1
      return 'charged'
    }
    const asked = pay.run('a', work)
    await held.reached
    mailed.open()
    await turns()
    held.release()
    expect((await asked).value).toBe('charged')
    expect((await other.run('a', work)).value).toBe('charged')
    expect(ran).toBe(1)
  })

  test('nor is a final failure, when a step is asked for while it is on its way', async () => {
    const { engine, pay, other, charge, charges } = await world()
    const held = engine.next('putLeaving', 'hold request')
    let late: Promise<unknown> | undefined
    const failing = pay.run('a', (attempt) => {
      late = held.reached.then(() => charge(attempt)).catch(() => {})
      throw attempt.final(new Error('declined'))
    })
    failing.catch(() => {})
    await held.reached
    await late
    await turns()
    held.release()
    await expect(failing).rejects.toThrow('declined')
    await expect(other.run('a', charge)).rejects.toThrow(ReplayedFailureError)
    expect(charges).toEqual([])
  })
})

test('a store elsewhere that is away is tried for a ttl, and not for as long as the locks are there', async () => {
  const clock = fakeClock()
  const options = { clock, ttl: '3s', callTimeout: '2s' } as const
  const engine = faulty(memory({ server: new MemoryServer({ clock }) }))
  const pay = once(locksOn(memory({ server: new MemoryServer({ clock }) }), options), {
    store: locksOn(engine, options),
  })
  let told: unknown
  const asked = pay.run('a', () => {
    engine.cut()
    return 'charged'
  })
  asked.catch((error: unknown) => {
    told = error
  })
  await clock.advance('10s')
  expect(told).toBeInstanceOf(EngineError)
})

describe('a step that the same execution asks for again', () => {
  test('is not done again if its answer cannot be stored', async () => {
    const { pay } = await world()
    let charged = 0
    const failing = pay.run('a', async (attempt) => {
      for (let tries = 0; tries < 3; tries += 1)
        await attempt
          .step('charge', () => {
            charged += 1
            return { amount: 10n }
          })
          .catch(() => {})
      throw new Error('enough')
    })
    await expect(failing).rejects.toThrow('enough')
    expect(charged).toBe(1)
  })

  test('runs once at a time, though two of its callers ask again at once', async () => {
    const { pay } = await world()
    let running = 0
    let most = 0
    let tries = 0
    const { value } = await pay.run('a', (attempt) => {
      const charge = async (): Promise<number> => {
        running += 1
        most = Math.max(most, running)
        tries += 1
        const nth = tries
        await turns(2)
        running -= 1
        if (nth === 1) throw new Error('no answer')
        return nth
      }
      const retried = (): Promise<number> => attempt.step('charge', charge).catch(() => attempt.step('charge', charge))
      return Promise.all([retried(), retried()])
    })
    expect(value).toEqual([2, 2])
    expect(most).toBe(1)
  })
})
