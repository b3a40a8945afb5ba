/** Death and absence: of holders, of waiters, in line and at work; in this process by silence, in others by SIGKILL and SIGSTOP. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Look, Turn } from '../actor/protocol.ts'
import type { Case, Group } from '../case.ts'
import { mutexes } from '../mutexes.ts'
import { actors, lossBeforeNext, ownTtl } from '../needs.ts'
import { later, type Scene } from '../scene.ts'

/** A file of numbers that processes add to. */
async function withNumbers(work: (file: string, numbers: () => Record<string, number>) => Promise<void>): Promise<void> {
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
      await Promise.all(crew.map((actor, index) => actor.ask('count', { lock: like.spec(key), file, name: `actor ${index}`, times })))
      assert.deepEqual(numbers(), { 'actor 0': times, 'actor 1': times, 'actor 2': times })
    })
  },
}))

/** A holds and says at every turn whether it does; something is done to it; B, here, waits and gets the lock. Then A's own record is read. */
async function takenOver(
  scene: Scene,
  looking: boolean,
  away: 'cut' | 'stopped',
): Promise<{ turns: readonly Turn[]; grantedNs: bigint; last: Look }> {
  const ttlMs = Math.max(scene.traits.minTtlMs, 1_000)
  const actor = await scene.actor({ ttlMs })
  const locks = await scene.locks()
  const key = scene.key()
  const engine = await scene.engine()
  await actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key } })
  await actor.ask('attend', { lease: 'a', looking })
  const next = later(locks.mutex(key).acquire())
  await scene.inLine(engine, key, 2)
  if (away === 'cut') await actor.cut()
  else actor.stop()
  const lease = await next
  const grantedNs = process.hrtime.bigint()
  if (away === 'stopped') actor.continue()
  const turns = await scene.eventually('two turns after the grant', async () => {
    const all = await actor.ask('turns', { lease: 'a' })
    return all.filter(({ atNs }) => atNs > grantedNs).length >= 2 && all
  })
  const last = await actor.ask('look', { lease: 'a' })
  assert.equal(lease.held, true)
  if (away === 'cut') await actor.heal()
  assert.equal(await actor.ask('release', { lease: 'a' }), false, 'the old holder releases what it has lost')
  assert.equal(lease.held, true)
  assert.equal(await lease.release(), true)
  return { turns, grantedNs, last }
}

const takeovers: readonly Case[] = (['cut', 'stopped'] as const).flatMap((away) => [
  {
    name: `a holder that is ${away} knows of its loss, whenever it looks, before the next one is let in`,
    needs: [actors, lossBeforeNext],
    async run(scene) {
      const { turns, grantedNs } = await takenOver(scene, true, away)
      assert(
        turns.some(({ looked }) => looked?.held === true),
        'it held at first',
      )
      for (const { atNs, looked } of turns) {
        if (atNs > grantedNs) assert.deepEqual(looked, { held: false, aborted: true }, 'seen after the next one was let in')
      }
    },
  },
  {
    name: `a holder that is ${away} and does not look is told by its signal`,
    needs: [actors, lossBeforeNext],
    async run(scene) {
      const { turns, grantedNs, last } = await takenOver(scene, false, away)
      // In the first turn after the grant the timer that tells may be the next to run; it is not left for a second one.
      const [, second] = turns.filter(({ atNs }) => atNs > grantedNs)
      assert.equal(second?.told, true, 'the signal was silent when the next one was let in')
      assert.deepEqual({ held: last.held, aborted: last.aborted }, { held: false, aborted: true })
    },
  },
])

export const crash: Group = {
  property: 'death and absence',
  cases: [
    {
      name: 'a waiter that dies in line does not hold up those behind it for longer than its ttl',
      needs: [ownTtl],
      async run(scene) {
        const engine = await scene.engine()
        const [locks, dying] = await Promise.all([scene.locks(), scene.faulty({ ttl: scene.shortTtlMs })])
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
      name: 'a process that waits is killed: the one behind it is served',
      needs: [actors],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks()]
        const actor = await scene.actor({ ttlMs: 3 * scene.shortTtlMs })
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
      name: 'a process that holds is killed: the next one holds, and nothing of the dead one remains',
      needs: [actors],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks()]
        const actor = await scene.actor({ ttlMs: 3 * scene.shortTtlMs })
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
    ...counting,
    ...takeovers,
  ],
}
