/** What a caller is told of a refusal: not that nothing was applied, where an attempt of it may have been. */
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import { unknownOutcome, unreachable, waiting, wrongPassword } from './scripted-engine.ts'
import { outage, scripted, settled, TTL, watched } from './world.ts'

describe('the outcome of a refusal is unknown', () => {
  test('after an outage in which the first enter was not answered, and each later one failed before it was sent', async () => {
    const world = scripted({ callTimeout: 1000 })
    const asked = watched(world.locks.mutex('a').acquire())
    await world.engine.next('enter')
    await world.clock.advance(1000)
    await outage(world, TTL + 2000)
    expect(asked.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown', transient: true })
    expect(asked.error).toMatchObject({ message: expect.stringContaining('no answer for'), cause: unreachable() })
    expect(world.engine.log.at(-1), 'and what may have arrived is left').toBe('leave a')
  })

  test('where a failure that will not pass follows an enter that was not answered', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).fail(unknownOutcome())
    await clock.advance(1500)
    const cause = new Error('WRONGPASS')
    const refused = { outcome: 'not-applied', transient: false, cause } as const
    await (await engine.next('enter')).fail(new EngineError('scripted', 'enter: wrong password', refused))
    const message = 'scripted: enter: wrong password'
    expect(asked.error).toMatchObject({ code: 'ENGINE', message, outcome: 'unknown', transient: false, cause })
    expect((await engine.next('leave')).keys).toEqual(['a'])
  })

  test('where an enter is on its way when the outage has lasted for too long', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 2 * TTL })
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).fail(unreachable())
    await clock.advance(1500)
    const enter = await engine.next('enter')
    await clock.advance(TTL)
    expect(asked.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
    await enter.answer(waiting(1))
    expect((await engine.next('leave')).ids).toEqual(enter.ids)
  })

  test('for a waiter: it stood in the line', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await (await world.engine.next('enter')).answer(waiting(1))
    await outage(world, 2 * TTL)
    expect(asked.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
  })
})

describe('nothing was applied', () => {
  test('where every attempt of an outage has failed before it was sent', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await outage(world, TTL + 2000)
    expect(asked.error).toMatchObject({ code: 'ENGINE', outcome: 'not-applied' })
    expect(await world.engine.unseen(), 'and nothing is left').toEqual([])
  })

  test('where the only attempt was refused, and the error is passed on as it is', async () => {
    const { engine, locks } = scripted()
    const error = wrongPassword()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).fail(error)
    await settled()
    expect(asked.error).toBe(error)
    expect(error.outcome).toBe('not-applied')
  })
})
