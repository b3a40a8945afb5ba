/**
 * A holder learns of its loss before the next one is let in. It is shown by its own record: what it saw, turn by turn
 * of its event loop, with the time of the host, which all processes share.
 */
import assert from 'node:assert/strict'
import { monotonicNs } from '../../src/clients/sqlite/monotonic.ts'
import type { Look, Turn } from '../actor/protocol.ts'
import type { Group } from '../case.ts'
import { actors, lossBeforeNext } from '../needs.ts'
import { later, type Scene } from '../scene.ts'

/**
 * A holds and says at every turn whether it does; something is done to it; B, here, waits and gets the lock. Then A's
 * own record is read.
 */
async function takenOver(
  scene: Scene,
  looking: boolean,
  away: 'cut' | 'stopped',
): Promise<{ turns: readonly Turn[]; grantedNs: bigint; last: Look }> {
  const ttlMs = Math.max(scene.traits.minTtlMs, 2_000)
  const actor = await scene.actor({ ttlMs })
  const locks = await scene.locks()
  const key = scene.key()
  const engine = await scene.engine()
  await actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key } })
  await actor.ask('attend', { lease: 'a', looking })
  await scene.eventually('a first turn', async () => (await actor.ask('turns', { lease: 'a' })).length > 0)
  const next = later(locks.mutex(key).acquire())
  await scene.inLine(engine, key, 2)
  if (away === 'cut') await actor.cut()
  else actor.stop()
  const lease = await next
  const grantedNs = monotonicNs()
  if (away === 'stopped') actor.continue()
  const turns = await scene.eventually('three turns after the grant', async () => {
    const all = await actor.ask('turns', { lease: 'a' })
    return all.filter(({ atNs }) => atNs > grantedNs).length >= 3 && all
  })
  const last = await actor.ask('look', { lease: 'a' })
  assert.equal(lease.held, true)
  if (away === 'cut') await actor.heal()
  assert.equal(await actor.ask('release', { lease: 'a' }), false, 'the old holder releases what it has lost')
  assert.equal(lease.held, true)
  assert.equal(await lease.release(), true)
  return { turns, grantedNs, last }
}

export const loss: Group = {
  property: 'loss before the next one',
  atOnce: true,
  cases: (['cut', 'stopped'] as const).flatMap((away) => [
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
          if (atNs > grantedNs)
            assert.deepEqual(looked, { held: false, aborted: true }, 'seen after the next one was let in')
        }
      },
    },
    {
      name: `a holder that is ${away} and does not look is told by its signal`,
      needs: [actors, lossBeforeNext],
      async run(scene) {
        const { turns, grantedNs, last } = await takenOver(scene, false, away)
        // One turn may have been under way when it was stopped, and in the next one the timer that tells may come
        // second. No later one is silent.
        const [, , third] = turns.filter(({ atNs }) => atNs > grantedNs)
        assert.equal(third?.told, true, 'the signal was silent when the next one was let in')
        assert.deepEqual({ held: last.held, aborted: last.aborted }, { held: false, aborted: true })
      },
    },
  ]),
}
