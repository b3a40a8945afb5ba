/** Release: what it answers, what it waits for, and what of it stays in the line. */
import { describe, expect, test } from 'vitest'
import { channels } from '../../src/core/diagnostics.ts'
import { UnsupportedError } from '../../src/core/errors.ts'
import { published } from './published.ts'
import { failed, held, unreachable } from './scripted-engine.ts'
import { BEAT, holding, scripted, TTL, watched } from './world.ts'

describe('release', () => {
  test('twice is once, and both are told the same', async () => {
    const { engine, lease } = await holding()
    using events = published('release')
    const first = watched(lease.release())
    const second = watched(lease.release())
    await (await engine.next('leave')).answer(true)
    expect([first.value, second.value, await lease.release()]).toEqual([true, true, true])
    expect(engine.log.filter((call) => call === 'leave a')).toHaveLength(1)
    expect(events.names).toEqual(['release'])
  })

  test('never rejects, whatever the engine does', async () => {
    const { engine, lease } = await holding()
    const released = watched(lease.release())
    await (await engine.next('leave')).fail(new Error('boom'))
    expect(released.value).toBe(false)
  })

  test('that is not answered does not keep the caller longer than a call may take', async () => {
    const { clock, lease } = await holding({ callTimeout: 2000 })
    const released = watched(lease.release())
    await clock.advance(2000)
    expect(released.value).toBe(false)
  })

  test('is no loss: the signal stays silent', async () => {
    const { engine, clock, lease } = await holding()
    const { signal } = lease
    void lease.release()
    await (await engine.next('leave')).answer(true)
    await clock.advance(TTL * 2)
    expect(signal.aborted).toBe(false)
    expect(lease.held).toBe(false)
  })

  test('of a lost lease answers false, and still leaves: something of it may be in the line', async () => {
    const { engine, clock, lease } = await holding()
    clock.stall(TTL)
    const released = watched(lease.release())
    await (await engine.next('leave')).answer(true)
    expect(released.value).toBe(false)
  })

  test('stops renewals: none is sent after it, not even one that was asked for before', async () => {
    const { engine, clock, lease, id } = await holding()
    // A hint asks for a renewal, and in the same turn, before it goes out, the lease is released.
    const told = engine.tell({ key: 'a', id })
    void lease.release()
    await told
    await (await engine.next('leave')).answer(true)
    await clock.advance(TTL * 2)
    expect(engine.log.slice(2)).toEqual(['leave a'])
  })

  test('answers to renewals that were on their way change nothing', async () => {
    const { engine, clock, lease } = await holding()
    await clock.advance(BEAT)
    const renewal = await engine.next('renew')
    void lease.release()
    await (await engine.next('leave')).answer(true)
    await renewal.answer(held(1n))
    expect(lease.held).toBe(false)
    await clock.advance(TTL)
    expect(await engine.unseen()).toEqual([])
  })

  test('with `after` renews once more for that long, and no longer', async () => {
    const { engine, clock, lease } = await holding()
    const released = watched(lease.release({ after: '1m' }))
    const renewal = await engine.next('renew')
    expect(renewal.items).toEqual([{ key: 'a', id: renewal.ids[0], ttlMs: 60_000, outlives: true }])
    await renewal.answer(held(1n, 60_000))
    expect(released.value).toBe(true)
    expect(lease.held).toBe(false)
    await clock.advance('2m')
    expect(await engine.unseen()).toEqual([])
  })

  test('with `after` longer than the engine keeps is refused: the lease is held on, and the engine asked for nothing', async () => {
    const { engine, locks } = scripted({}, { maxTtlMs: 20_000 })
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    const refusal = new UnsupportedError('scripted', 'scripted keeps a key busy behind its process for 20s at most')
    for (const after of ['20.1s', '1m'] as const) expect(() => asked.value.release({ after })).toThrow(refusal)
    expect(asked.value.held).toBe(true)
    expect(await engine.unseen()).toEqual([])
    void asked.value.release({ after: '20s' })
    expect((await engine.next('renew')).items).toMatchObject([{ ttlMs: 20_000, outlives: true }])
  })

  test('with `after` waits for an enter that is still on its way, and takes out what it brings when the time is over', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    await clock.advance(2500)
    const second = await engine.next('enter')
    await first.answer(held(1n))
    const released = watched(asked.value.release({ after: '1m' }))
    expect(await engine.unseen(), 'the second enter would renew it for a whole ttl').toEqual([])
    await second.answer(held(1n))
    await (await engine.next('renew')).answer(held(1n, 60_000))
    expect(released.value).toBe(true)
    await clock.advance('59s')
    expect(await engine.unseen()).toEqual([])
    await clock.advance('2s')
    expect((await engine.next('leave')).ids).toEqual(first.ids)
  })

  test('with `after` waits for no renewal but its own', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: TTL })
    const other = watched(locks.mutex('stuck').acquire())
    await (await engine.next('enter')).answer(held(1n))
    expect(other.state).toBe('resolved')
    await clock.advance(TTL / 3)
    expect((await engine.next('renew')).keys).toEqual(['stuck'])
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(2n))
    void asked.value.release({ after: '1m' })
    expect((await engine.next('renew')).items).toMatchObject([{ key: 'a', outlives: true }])
  })

  test('with `after` never rejects either', async () => {
    const { engine, lease } = await holding()
    const released = watched(lease.release({ after: '1m' }))
    await (await engine.next('renew')).fail(unreachable())
    expect(released.value).toBe(false)
  })

  test('with `after` tells of its failure, whether the call is refused, rejects, or is not answered', async () => {
    const told: unknown[] = []
    for (const how of ['refused', 'rejects', 'unanswered', 'closed'] as const) {
      using events = published('failure')
      const { engine, clock, lease, locks } = await holding({ callTimeout: 2000 })
      const released = watched(lease.release({ after: '1m' }))
      const renewal = await engine.next('renew')
      if (how === 'refused') await renewal.answer(failed(unreachable()))
      if (how === 'rejects') await renewal.fail(new Error('boom'))
      if (how === 'closed') void locks.close()
      await clock.advance(2000)
      expect([released.value, engine.log.includes('leave a')], how).toEqual([false, false])
      told.push(events.of('failure').map(({ verb, held, error }) => [verb, held, error.message, error.outcome]))
    }
    expect(told).toEqual([
      [['renew', true, 'scripted: cannot be reached', 'not-applied']],
      [['renew', true, 'scripted: renew: boom', 'unknown']],
      [['renew', true, 'scripted: renew: no answer within 2000 ms', 'unknown']],
      [],
    ])
  })

  test('with `after` is not told as a loss as well, though a subscriber is so slow that the deadline passes', async () => {
    const { engine, clock, lease } = await holding()
    using events = published('release', 'loss')
    const stall = (): void => clock.stall(TTL)
    channels.release.subscribe(stall)
    const released = watched(lease.release({ after: '1m' }))
    channels.release.unsubscribe(stall)
    await (await engine.next('renew')).answer(held(1n, 60_000))
    expect(events.names).toEqual(['release'])
    expect(released.value, 'the engine had it until then').toBe(true)
  })
})
