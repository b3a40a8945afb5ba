/** `locks.watch`: the line, again whenever it may have changed. */
import { describe, expect, test } from 'vitest'
import type { Line } from '../../src/core/engine.ts'
import { unreachable } from './scripted-engine.ts'
import { inMemory, scripted, settled, watched } from './world.ts'

const holders = (line: Line): string => line.entries.map(({ state }) => state).join(' ')

describe('a watch', () => {
  test('shows the line now, and at once when it changes, where the engine can watch', async () => {
    const { clock, locks } = inMemory()
    const lines = locks.watch('a', { every: '1h' })
    expect(holders((await lines.next()).value as Line)).toBe('')
    const next = watched(lines.next())
    await settled()
    expect(next.state).toBe('pending')
    const lease = await locks.mutex('a').acquire()
    await settled()
    expect(holders(next.value.value as Line)).toBe('held')
    await lease.release()
    await lines.return()
    expect(clock.alive).toBe(0)
  })

  test('looks now and then where it cannot', async () => {
    const { clock, locks } = scripted()
    const lines = locks.watch('a', { every: '2s' })
    await lines.next()
    const next = watched(lines.next())
    await clock.advance(1999)
    expect(next.state).toBe('pending')
    await clock.advance(1)
    expect(next.state).toBe('resolved')
    await lines.return()
  })

  test('ends when the locks are closed, and when its signal is aborted', async () => {
    const { clock, locks } = inMemory()
    const controller = new AbortController()
    const [closed, aborted] = [locks.watch('a'), locks.watch('a', { signal: controller.signal })]
    await Promise.all([closed.next(), aborted.next()])
    const ended = [watched(closed.next()), watched(aborted.next())]
    controller.abort()
    await locks.close()
    await settled()
    expect(ended.map(({ value }) => value.done)).toEqual([true, true])
    expect(clock.alive).toBe(0)
  })

  test('ends at once when the locks are closed, though a look is never answered', async () => {
    const { clock, engine, locks } = scripted()
    const [lines, leaders] = [locks.watch('a'), locks.election('a').observe()]
    await Promise.all([lines.next(), leaders.next()])
    engine.inspecting = () => new Promise(() => {})
    const ended = [watched(lines.next()), watched(leaders.next())]
    await clock.advance(3500)
    void locks.close()
    await settled()
    expect(ended.map(({ value }) => value.done)).toEqual([true, true])
  })

  test('ends at once when the locks are closed, though its hints cannot be ended', async () => {
    for (const end of [() => new Promise<void>(() => {}), () => Promise.reject(new Error('the engine is closed'))]) {
      const { engine, locks } = scripted()
      Object.assign(engine, { watch: async () => ({ [Symbol.asyncDispose]: end }) })
      const lines = locks.watch('a')
      await lines.next()
      const ended = watched(lines.next())
      await settled()
      void locks.close()
      await settled()
      expect(ended.value.done).toBe(true)
    }
  })

  test('that is left does not wait for its hints to end for longer than a call may take', async () => {
    const { clock, engine, locks } = scripted({ callTimeout: 1000 })
    Object.assign(engine, { watch: async () => ({ [Symbol.asyncDispose]: () => new Promise(() => {}) }) })
    const lines = locks.watch('a')
    await lines.next()
    const left = watched(lines.return())
    await clock.advance(1000)
    expect(left.state).toBe('resolved')
    expect(clock.alive).toBe(0)
  })

  test('rejects when the engine cannot be asked, or the question makes no sense', async () => {
    const { engine, locks } = scripted()
    engine.inspecting = () => Promise.reject(unreachable())
    await expect(locks.watch('a').next()).rejects.toMatchObject({ code: 'ENGINE' })
    expect(() => locks.watch('')).toThrow(RangeError)
    expect(() => locks.watch('a', { every: 0 })).toThrow('at least 10 ms')
  })
})
