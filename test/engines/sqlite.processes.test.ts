/** Many processes on one file: opening it, taking turns, waking each other, and agreeing on the time. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Line } from '../../src/core/engine.ts'
import { claim, whyNot } from './sqlite.process.ts'
import { children, file, folder } from './sqlite-world.ts'

test('48 processes open a fresh file at once, and all of them get in line', async () => {
  const starting = Array.from({ length: 48 }, () => children.start({ file }))
  const all = await Promise.all(starting)
  // Opening is lazy, so this is the moment at which all of them make the file.
  const standings = await Promise.all(all.map((child) => child.enter(claim('k', { limit: 1000 }))))
  for (const standing of standings) expect(standing).toMatchObject({ state: 'held' })
  const line = await (all[0] as (typeof all)[0]).ask<Line>('inspect', 'k')
  expect(new Set(line.entries.map(({ token }) => token)).size).toBe(48)
}, 120_000)

test('four processes take turns many times: no two overlap, and tokens only go up', async () => {
  const [marker, log] = [join(folder, 'held'), join(folder, 'tokens')]
  const times = 250
  const four = await Promise.all(Array.from({ length: 4 }, () => children.start({ file })))
  await Promise.all(four.map((child) => child.ask('cycle', { key: 'k', times, marker, log })))
  const tokens = readFileSync(log, 'utf8').trim().split('\n').map(BigInt)
  expect(tokens).toHaveLength(4 * times)
  for (const [index, token] of tokens.entries())
    if (index > 0) expect(token).toBeGreaterThan(tokens[index - 1] as bigint)
}, 120_000)

test('a hand-off reaches the process that waited longest, and leaves nothing behind', async () => {
  const [holder, first, second] = [
    await children.start({ file }),
    await children.start({ file }),
    await children.start({ file }),
  ]
  const claims = [claim('k'), claim('k'), claim('k')] as const
  await holder.enter(claims[0])
  await first.enter(claims[1])
  await second.enter(claims[2])
  await holder.ask('leave', [claims[0]])
  const firstAt = await first.heardHeld(claims[1].id)
  await first.ask('leave', [claims[1]])
  expect(await second.heardHeld(claims[2].id)).toBeGreaterThan(firstAt)
  await second.ask('leave', [claims[2]])
  for (const child of [holder, first, second]) await child.ask('close')
  expect(readdirSync(`${file}-wake`)).toEqual([])
})

test('a waiter hears of an expiry in another process without any call', async () => {
  const [holder, waiter] = [await children.start({ file, outlives: true }), await children.start({ file })]
  const next = claim('k', { ttlMs: 3_600_000 })
  await holder.enter(claim('k', { ttlMs: 400 }))
  await waiter.enter(next)
  await waiter.heardHeld(next.id)
})

test('an engine with a holder and a waiter does not keep its process alive', async () => {
  const module = new URL('../../dist/src/engines/sqlite/index.js', import.meta.url).href
  const claims = [claim('k'), claim('k')]
  const script = `import { sqlite } from ${JSON.stringify(module)}
    const engine = sqlite({ file: ${JSON.stringify(file)} })
    await engine.subscribe(() => {})
    const standings = await engine.enter(${JSON.stringify(claims)})
    await engine.watch('k', () => {})
    if (standings[1].state !== 'waiting') process.exitCode = 2`
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' })
  expect(await once(child, 'exit')).toEqual([0, null])
})

describe('all processes of the host agree on the time', () => {
  test('when the wall clock of one of them is a day off', async (context) => {
    const reason = whyNot('gcc', '--version')
    if (reason !== undefined) return context.skip(reason)
    const behind = await children.start({ file }, [], { LD_PRELOAD: wallClockOffBy(-86_400) })
    const ahead = await children.start({ file }, [], { LD_PRELOAD: wallClockOffBy(86_400) })
    const right = await children.start({ file })
    expect((await ahead.ask<number>('wallMs')) - (await behind.ask<number>('wallMs'))).toBeGreaterThan(1.9 * 86_400_000)
    const tokens: bigint[] = []
    for (const child of [ahead, right, behind, right, behind]) {
      const held = claim('k')
      const standing = await child.enter(held)
      expect(standing).toMatchObject({ state: 'held', heldForMs: 60_000 })
      tokens.push((standing as { token: bigint }).token)
      for (const other of [ahead, right, behind]) {
        const [entry] = (await other.ask<Line>('inspect', 'k')).entries
        expect(entry?.remainingMs).toBeGreaterThan(0)
        expect(entry?.remainingMs).toBeLessThanOrEqual(60_000)
        if (other !== child) expect(await other.enter(claim('k', { wait: false }))).toEqual({ state: 'busy', ahead: 1 })
      }
      await child.ask('leave', [held])
    }
    expect([...tokens].sort((a, b) => (a < b ? -1 : 1))).toEqual(tokens)
  })

  test('when one of them has a time namespace of its own', async (context) => {
    const wrapper = ['unshare', '--time', '--monotonic', '1000000', '--fork', '--kill-child']
    const reason = whyNot(wrapper[0] as string, ...wrapper.slice(1), 'true')
    if (reason !== undefined) return context.skip(reason)
    const [shifted, right] = [await children.start({ file }, wrapper), await children.start({ file })]
    expect((await shifted.ask<bigint>('now')) - (await right.ask<bigint>('now'))).toBeGreaterThan(
      900_000n * 1_000_000_000n,
    )
    await shifted.enter(claim('k'))
    const [entry] = (await right.ask<Line>('inspect', 'k')).entries
    expect(entry?.remainingMs).toBeGreaterThan(0)
    expect(entry?.remainingMs).toBeLessThanOrEqual(60_000)
    expect(await right.enter(claim('k', { wait: false }))).toEqual({ state: 'busy', ahead: 1 })
  })
})

/** A library that shifts the wall clock, and only that, of the process it is loaded into. */
function wallClockOffBy(seconds: number): string {
  const [source, library] = [join(folder, `wall${seconds}.c`), join(folder, `wall${seconds}.so`)]
  writeFileSync(
    source,
    `#define _GNU_SOURCE
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>
    int clock_gettime(clockid_t clock, struct timespec *t) {
      int result = syscall(SYS_clock_gettime, clock, t);
      if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) t->tv_sec += (${seconds});
      return result;
    }
    int gettimeofday(struct timeval *restrict t, void *restrict zone) {
      struct timespec now;
      int result = clock_gettime(CLOCK_REALTIME, &now);
      t->tv_sec = now.tv_sec;
      t->tv_usec = now.tv_nsec / 1000;
      return result;
    }
    time_t time(time_t *t) {
      struct timespec now;
      clock_gettime(CLOCK_REALTIME, &now);
      if (t) *t = now.tv_sec;
      return now.tv_sec;
    }`,
  )
  const failed = whyNot('gcc', '-shared', '-fPIC', '-o', library, source)
  if (failed !== undefined) throw new Error(failed)
  return library
}
