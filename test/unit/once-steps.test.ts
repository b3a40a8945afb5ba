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
  const pay = once(locksOn(engine, options), { crashed: 'ask', wait: '20s' })
  const other = once(locksOn(memory({ server }), options), { crashed: 'ask', wait: '20s' })
  await pay.run('warm', () => 1)
  await turns()
  const charges: number[] = []
  const charge = (attempt: Attempt): Promise<number> =>
    attempt.step('charge', () => {
      charges.push(attempt.number)
      return attempt.number
    })
  return { clock, engine, pay, other, charge, charges }
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
