/**
 * Death and absence: of holders, of waiters, in line and at work; in this process by silence, in others by SIGKILL and
 * SIGSTOP.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Case, Group } from '../case.ts'
import { mutexes } from '../mutexes.ts'
import { actors, fifo, lossBeforeNext, ownTtl } from '../needs.ts'
import { later } from '../scene.ts'
import { isBusy } from '../standings.ts'

/** A file of numbers that processes add to. */
async function withNumbers(
  work: (file: string, numbers: () => Record<string, number>) => Promise<void>,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-numbers-'))
  const file = join(folder, 'numbers.json')
  writeFileSync(file, '{}')
  try {
    await work(file, () => JSON.parse(readFileSync(file, 'utf8')) as Record<string, number>)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const counting: readonly Case[] = mutexes.map((like) => ({
  name: `${like.name}: processes that count in one file lose no update`,
  needs: [actors, ...like.needs],
  async run(scene) {
    const { key } = await like.prepare(scene)
    const crew = await scene.times(3, () => scene.actor())
    const times = 20 * scene.rounds
    await withNumbers(async (file, numbers) => {
      await Promise.all(
        crew.map((actor, index) => actor.ask('count', { lock: like.spec(key), file, name: `actor ${index}`, times })),
      )
      assert.deepEqual(numbers(), { 'actor 0': times, 'actor 1': times, 'actor 2': times })
    })
  },
}))

/** Played alone, because they are busy all the time. */
export const counts: Group = {
  property: 'processes at work',
  cases: [
    ...counting,
    {
      name: 'a process is killed while all of them count: the others lose no update',
      needs: [actors],
      async run(scene) {
        const crew = await scene.times(3, () => scene.actor({ ttlMs: Math.max(scene.traits.minTtlMs, 1_500) }))
        const [victim, ...others] = crew
        assert(victim !== undefined)
        const key = scene.key()
        await withNumbers(async (file, numbers) => {
          const ask = (actor: (typeof crew)[number], name: string, times: number): Promise<number> =>
            actor.ask('count', { lock: { kind: 'mutex', key }, file, name, times })
          void ask(victim, 'victim', Number.MAX_SAFE_INTEGER)
          await scene.eventually('the victim at work', () => (numbers().victim ?? 0) > 2)
          const times = 20 * scene.rounds
          const counted = later(Promise.all(others.map((actor, index) => ask(actor, `other ${index}`, times))))
          await scene.eventually('all at work', () => Object.keys(numbers()).length === 3)
          await victim.kill()
          await counted
          const { 'other 0': first, 'other 1': second } = numbers()
          assert.deepEqual({ first, second }, { first: times, second: times })
        })
      },
    },
  ],
}

export const crash: Group = {
  property: 'death and absence',
  atOnce: true,
  cases: [
    {
      name: 'a client that is cut off is told of its loss by the signal, and by signals made from it, without looking',
      needs: [ownTtl],
      async run(scene) {
        const client = await scene.faulty()
        const lease = await client.locks.mutex(scene.key(), { ttl: scene.fairTtlMs }).acquire()
        const told: string[] = []
        lease.signal.addEventListener('abort', () => told.push('the signal'))
        AbortSignal.any([lease.signal, new AbortController().signal]).addEventListener('abort', () =>
          told.push('one made from it'),
        )
        client.engine.cut()
        await scene.eventually('both told', () => told.length === 2)
        assert(
          lease.signal.reason instanceof LeaseLostError && lease.signal.reason.why === 'deadline',
          String(lease.signal.reason),
        )
        assert.equal(lease.held, false)
      },
    },
    {
      name: 'a waiter that dies in line does not hold up those behind it for longer than its ttl',
      needs: [ownTtl],
      async run(scene) {
        const engine = await scene.engine()
        const [locks, dying] = await Promise.all([scene.locks(), scene.faulty({ ttl: scene.fairTtlMs })])
        const key = scene.key()
        const lease = await locks.mutex(key).acquire()
        void later(dying.locks.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        dying.engine.cut()
        const behind = later(locks.mutex(key).acquire())
        await scene.inLine(engine, key, 3)
        await lease.release()
        assert.equal((await behind).held, true)
      },
    },
    {
      name: 'a process whose connections are refused for nearly half of its ttl keeps what it holds',
      needs: [actors, ownTtl],
      limitMs: 60_000,
      async run(scene) {
        const ttlMs = Math.max(6_000, scene.traits.minTtlMs)
        const engine = await scene.engine()
        const remainingMs = async (key: string): Promise<number> =>
          (await engine.inspect(key)).entries[0]?.remainingMs ?? Number.NaN
        // Again, should this machine have made the blip longer than it was meant to be.
        await scene.eventually('a blip of less than half of the ttl', async () => {
          const [actor, first] = [await scene.actor({ ttlMs }), scene.key()]
          const leases = await Promise.all(
            [first, scene.key(), scene.key()].map(async (key) => {
              const { token } = await actor.ask('acquire', { lease: key, lock: { kind: 'mutex', key } })
              return { key, token }
            }),
          )
          // The worst moment: right before a renewal, which comes when a third of the ttl is over.
          await scene.eventually('nearly a third of the ttl over', async () => (await remainingMs(first)) < 0.7 * ttlMs)
          const refusedAt = performance.now()
          if (!(await actor.refuse())) scene.doesNotApply('this world cannot refuse connections')
          await scene.eventually('the blip over', async () => !((await remainingMs(first)) >= 0.25 * ttlMs))
          await actor.heal()
          if (performance.now() - refusedAt > ttlMs / 2) return false
          await scene.eventually('all leases renewed', async () => {
            for (const { key, token } of leases) {
              const look = await actor.ask('look', { lease: key })
              assert.deepEqual([look.held, look.aborted, look.token], [true, false, token])
              if (!((await remainingMs(key)) > ttlMs / 2)) return false
            }
            return true
          })
          return true
        })
      },
    },
    {
      name: 'a process that waits is killed: the one behind it is served',
      needs: [actors],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks()]
        const actor = await scene.actor({ ttlMs: scene.fairTtlMs })
        const key = scene.key()
        const lease = await locks.mutex(key).acquire()
        void actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key } })
        await scene.inLine(engine, key, 2)
        const behind = later(locks.mutex(key).acquire())
        await scene.inLine(engine, key, 3)
        await actor.kill()
        await lease.release()
        assert.equal((await behind).held, true)
      },
    },
    {
      name: 'a process that waits is stopped for longer than its ttl: it comes back, at the back of the line',
      needs: [actors, fifo],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks()]
        const actor = await scene.actor({ ttlMs: scene.fairTtlMs })
        const key = scene.key()
        const lease = await locks.mutex(key).acquire()
        const waiting = actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key } })
        const { entries } = await scene.inLine(engine, key, 2)
        const behind = later(locks.mutex(key).acquire())
        await scene.inLine(engine, key, 3)
        actor.stop()
        await scene.gone(engine, { key, id: entries[1]?.id ?? '' })
        actor.continue()
        await lease.release()
        await (await behind).release()
        const { held } = await waiting
        assert.equal(held, true)
      },
    },
    {
      name: 'a process that holds is killed: the next one holds, and nothing of the dead one remains',
      needs: [actors],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks()]
        const actor = await scene.actor({ ttlMs: scene.fairTtlMs })
        const key = scene.key()
        await actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key } })
        void actor.ask('acquire', { lease: 'b', lock: { kind: 'mutex', key } })
        await scene.inLine(engine, key, 2)
        const next = later(locks.mutex(key).acquire())
        await scene.inLine(engine, key, 3)
        await actor.kill()
        const lease = await next
        await scene.inLine(engine, key, 1)
        assert.equal(await lease.release(), true)
      },
    },
    {
      name: 'a key that was released for later stays busy though its process is killed',
      needs: [actors, ownTtl],
      async run(scene) {
        const engine = await scene.engine()
        const afterMs = 5_000
        const standing = await scene.promptly(afterMs, async () => {
          const actor = await scene.actor()
          const lock = { kind: 'mutex', key: scene.key() } as const
          await actor.ask('acquire', { lease: 'a', lock })
          assert.equal(await actor.ask('release', { lease: 'a', afterMs }), true)
          await actor.kill()
          const [tried] = await engine.enter([scene.claim(lock.key, { wait: false })])
          return tried
        })
        isBusy(standing)
      },
    },
    {
      name: 'a process that stalls for longer than its ttl loses the lock to the next one, and sees it before anything else',
      needs: [actors, lossBeforeNext],
      async run(scene) {
        const ttlMs = scene.fairTtlMs
        const [engine, locks] = [await scene.engine(), await scene.locks()]
        const actor = await scene.actor({ ttlMs })
        const key = scene.key()
        await actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key } })
        const next = later(locks.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        const stalled = actor.ask('stall', { lease: 'a', ms: 2 * ttlMs })
        const lease = await next
        const { held, aborted } = await stalled
        assert.deepEqual({ held, aborted }, { held: false, aborted: true })
        assert.equal(lease.held, true)
      },
    },
  ],
}
