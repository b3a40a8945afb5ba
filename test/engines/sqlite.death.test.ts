/**
 * When a holder's process dies, and when it only seems to have died. Real processes, really killed and stopped.
 *
 * Nothing here measures speed: a take-over "at once" is one that happens at all, under a ttl longer than the test may
 * take; "not early" is one that happens no sooner than the host's clock allows.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { Line } from '../../src/core/engine.ts'
import { type Child, claim, whyNot } from './sqlite.process.ts'
import { children, file } from './sqlite-world.ts'

const TTL_MS = 3000
const AN_HOUR = 3_600_000
/** Long enough for several rounds of a patrol. */
const ROUNDS_MS = 1200

const PID_NAMESPACE = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc']
const noPidNamespace = whyNot('unshare', '--pid', '--fork', '--kill-child', '--mount-proc', 'true')

/**
 * The earliest moment, in nanoseconds, at which an entry of `TTL_MS` that was entered or renewed after `at` may be
 * taken over.
 */
const expiryAfter = (at: bigint): bigint => at + BigInt(TTL_MS) * 1_000_000n

async function holderAndWaiter(
  ttlMs: number,
  wrapper: readonly string[] = [],
): Promise<{ holder: Child; waiter: Child; waiting: string; at: bigint }> {
  const holder = await children.start({ file }, wrapper)
  const waiter = await children.start({ file })
  const at = process.hrtime.bigint()
  expect(await holder.enter(claim('k', { ttlMs }))).toMatchObject({ state: 'held' })
  const next = claim('k', { ttlMs: AN_HOUR })
  expect(await waiter.enter(next)).toEqual({ state: 'waiting', ahead: 1 })
  return { holder, waiter, waiting: next.id, at }
}

describe('a holder that is killed', () => {
  test('is replaced long before its ttl is over', async () => {
    const { holder, waiter, waiting } = await holderAndWaiter(AN_HOUR)
    holder.kill('SIGKILL')
    await waiter.heardHeld(waiting)
  })

  test('is replaced by a process that only comes afterwards and does not wait', async () => {
    const holder = await children.start({ file })
    await holder.enter(claim('k', { ttlMs: AN_HOUR }))
    await holder.end()
    const next = await children.start({ file })
    expect(await next.enter(claim('k', { wait: false }))).toMatchObject({ state: 'held' })
  })

  test('takes its waiters with it: a line of the dead is passed over by the next process that comes', async () => {
    const dead = [await children.start({ file }), await children.start({ file }), await children.start({ file })]
    for (const child of dead) await child.enter(claim('k', { ttlMs: AN_HOUR }))
    for (const child of dead) await child.end()
    const next = await children.start({ file })
    expect(await next.enter(claim('k', { wait: false }))).toMatchObject({ state: 'held' })
    expect(await next.ask<Line>('inspect', 'k')).toMatchObject({ entries: [{ state: 'held' }] })
  })

  test('is replaced when it is a zombie that is not reaped', async () => {
    // The shell starts us and becomes a program that never asks after its children.
    const { holder, waiter, waiting } = await holderAndWaiter(AN_HOUR, ['sh', '-c', '"$@" & exec sleep 600', 'sh'])
    expect(holder.pid).not.toBe(holder.process.pid)
    process.kill(holder.pid, 'SIGKILL')
    await waiter.heardHeld(waiting)
  })

  test('is not replaced early while a process group lives that it named', async () => {
    const { holder, waiter, waiting } = await holderAndWaiter(AN_HOUR)
    const group = await holder.ask<number>('adopt')
    await holder.end()
    await pause(ROUNDS_MS)
    const freed = process.hrtime.bigint()
    process.kill(-group, 'SIGKILL')
    expect(await waiter.heardHeld(waiting)).toBeGreaterThan(freed)
  })

  test('is replaced when only zombies are left of a process group that it named', async () => {
    const { holder, waiter, waiting } = await holderAndWaiter(AN_HOUR)
    // The leader of the new group ends at once, and becomes a zombie: its parent turns into a program that never asks
    // after its children.
    const parent = spawn('sh', ['-c', 'setsid sh -c "echo \\$\\$" & exec sleep 600'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    try {
      const [line] = (await once(parent.stdout, 'data')) as [Buffer]
      await holder.ask('alsoAlive', Number(line.toString()))
      await holder.end()
      await waiter.heardHeld(waiting)
      expect(() => process.kill(-Number(line.toString()), 0)).not.toThrow()
    } finally {
      parent.kill('SIGKILL')
    }
  })

  test('is not replaced early if its engine is to outlive its process', async () => {
    const holder = await children.start({ file, outlives: true })
    const waiter = await children.start({ file })
    const at = process.hrtime.bigint()
    await holder.enter(claim('k', { ttlMs: TTL_MS }))
    const next = claim('k')
    await waiter.enter(next)
    await holder.end()
    expect(await waiter.heardHeld(next.id)).toBeGreaterThan(expiryAfter(at))
  })

  test('is not replaced early if its last renewal said that the entry outlives it', async () => {
    const holder = await children.start({ file })
    const waiter = await children.start({ file })
    const [held, next] = [claim('k'), claim('k')]
    await holder.enter(held)
    await waiter.enter(next)
    const at = process.hrtime.bigint()
    await holder.ask('renew', [{ key: 'k', id: held.id, ttlMs: TTL_MS, outlives: true }])
    await holder.end()
    expect(await waiter.heardHeld(next.id)).toBeGreaterThan(expiryAfter(at))
  })
})

describe('a holder that is not dead', () => {
  test('is not replaced early while it is stopped', async () => {
    const { holder, waiter, waiting, at } = await holderAndWaiter(TTL_MS)
    holder.kill('SIGSTOP')
    expect(await waiter.heardHeld(waiting)).toBeGreaterThan(expiryAfter(at))
  })

  test('is not judged by a process of another pid namespace, where its pid means no process', async (context) => {
    if (noPidNamespace !== undefined) return context.skip(noPidNamespace)
    const holder = await children.start({ file })
    const waiter = await children.start({ file }, PID_NAMESPACE)
    const [held, next] = [claim('k'), claim('k')]
    await holder.enter(held)
    expect(await waiter.enter(next)).toEqual({ state: 'waiting', ahead: 1 })
    await pause(ROUNDS_MS)
    const released = process.hrtime.bigint()
    await holder.ask('leave', [{ key: 'k', id: held.id }])
    expect(await waiter.heardHeld(next.id)).toBeGreaterThan(released)
  })

  test('is given its ttl when it was killed in another pid namespace', async (context) => {
    if (noPidNamespace !== undefined) return context.skip(noPidNamespace)
    const { holder, waiter, waiting, at } = await holderAndWaiter(TTL_MS, PID_NAMESPACE)
    await holder.end()
    expect(await waiter.heardHeld(waiting)).toBeGreaterThan(expiryAfter(at))
  })

  test('is not judged by the /proc of a namespace that is not its own', async (context) => {
    const wrapper = ['unshare', '--pid', '--fork', '--kill-child']
    const reason = whyNot(wrapper[0] as string, ...wrapper.slice(1), 'true')
    if (reason !== undefined) return context.skip(reason)
    // Two processes with small pids, under a /proc in which those pids are kernel threads.
    const one = await children.start({ file }, wrapper)
    expect(await one.ask('enterBeside', { file }, [claim('k')])).toMatchObject([{ state: 'held' }])
    expect(await one.enter(claim('k', { wait: false }))).toEqual({ state: 'busy', ahead: 1 })
  })
})
