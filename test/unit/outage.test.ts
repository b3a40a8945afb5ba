/** An outage while callers wait: people hear of it long before the callers do. */
import { describe, expect, test } from 'vitest'
import { published } from './published.ts'
import { unreachable, waiting } from './scripted-engine.ts'
import { BEAT, outage, scripted, TTL, watched } from './world.ts'

describe('an outage while callers wait', () => {
  test('is a warning after a second or two, once, with its cause, for all of them together', async () => {
    using events = published('warning')
    const world = scripted()
    for (const key of ['a', 'b', 'c']) watched(world.locks.mutex(key).acquire())
    await outage(world, 900)
    expect(events.all).toEqual([])
    await outage(world, 2100)
    const message = expect.stringMatching(
      /^'\w' is waited for, and scripted has not answered for \d.*: cannot be reached$/,
    )
    expect(events.of('warning')).toMatchObject([{ engine: 'scripted', name: 'unreachable', message }])
    await outage(world, TTL / 2)
    expect(events.all.length).toBe(1)
  })

  test('is told again when it comes again', async () => {
    using events = published('warning')
    const world = scripted()
    watched(world.locks.mutex('a').acquire())
    await outage(world, 3000)
    await world.clock.advance(1000)
    await (await world.engine.next('enter')).answer(waiting(1))
    await outage(world, BEAT + 4000)
    expect(events.all.length).toBe(2)
  })

  test('is not told where it is shorter, or where the caller does not wait', async () => {
    using events = published('warning')
    const world = scripted()
    watched(world.locks.mutex('a').acquire())
    await (await world.engine.next('enter')).fail(unreachable())
    await world.clock.advance(1000)
    await (await world.engine.next('enter')).answer(waiting(1))
    const tried = watched(world.locks.mutex('b').tryAcquire())
    await (await world.engine.next('enter')).fail(unreachable())
    expect(tried.state).toBe('rejected')
    expect(events.all).toEqual([])
  })
})
