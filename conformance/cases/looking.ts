/** Looking at lines: who holds, who waits, since when, and word of a change for watchers. */
import assert from 'node:assert/strict'
import type { Group } from '../case.ts'
import { semaphores, watches } from '../needs.ts'
import { entryOf } from '../standings.ts'

export const looking: Group = {
  property: 'looking',
  atOnce: true,
  cases: [
    {
      name: 'a line shows its holders and waiters as they described themselves',
      needs: [semaphores],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const holders = ['api-7', 'O\'Brien \\ "quoted" %s {}', `ü${'x'.repeat(510)}`, '', 'line\nbreak\t🔑']
        const claims = holders.map((holder, index) =>
          scene.claim(key, { holder, weight: 1 + index, limit: 5, ttlMs: scene.longTtlMs - index }),
        )
        await one.enter(claims)
        const line = await other.inspect(key)
        assert.equal(line.entries.length, claims.length)
        for (const claim of claims) {
          const { holder, weight, limit, ttlMs, remainingMs, ageMs } = entryOf(line, claim)
          assert.deepEqual(
            { holder, weight, limit },
            { holder: claim.holder, weight: claim.weight, limit: claim.limit },
          )
          if (scene.traits.ttl === 'entry') assert.equal(ttlMs, claim.ttlMs)
          assert(remainingMs > 0 && remainingMs <= ttlMs, `${remainingMs} ms left of ${ttlMs}`)
          assert(ageMs === null || (ageMs >= 0 && ageMs < 60_000), `${ageMs} ms old`)
        }
      },
    },
    {
      name: 'for how long an entry has held is counted from its grant, not from when it came',
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const [holder, waiter] = [scene.claim(key), scene.claim(key)]
        await one.enter([holder])
        await one.enter([waiter])
        const waitedMs = await scene.eventually('a while in line', async () => {
          const { ageMs } = entryOf(await other.inspect(key), waiter)
          if (ageMs === null) return scene.doesNotApply('the engine does not store when an entry came')
          return ageMs >= 150 ? ageMs : undefined
        })
        await one.leave([holder])
        const { state, ageMs, heldMs } = await scene.eventually('the grant', async () => {
          await one.renew([waiter])
          const entry = entryOf(await other.inspect(key), waiter)
          return entry.state === 'held' ? entry : undefined
        })
        assert.equal(state, 'held')
        // Clocks that are read twice may differ by a little.
        assert(heldMs === null || heldMs <= (ageMs ?? 0) - waitedMs + 20, `${heldMs} ms held at ${ageMs} ms of age`)
      },
    },
    {
      name: 'a listing counts who holds and who waits',
      needs: [semaphores],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        await one.enter([1, 1, 2, 1].map((weight) => scene.claim(key, { weight, limit: 3 })))
        const summaries = []
        for await (const summary of other.list(key)) summaries.push(summary)
        assert.deepEqual(summaries, [{ key, held: 2, waiting: 2 }])
      },
    },
    {
      name: 'a line without entries is empty and is not listed',
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        assert.deepEqual(await engine.inspect(key), { key, entries: [] })
        const claim = scene.claim(key)
        await engine.enter([claim])
        await engine.leave([claim])
        assert.deepEqual(await engine.inspect(key), { key, entries: [] })
        for await (const summary of engine.list(key)) assert.fail(`${summary.key} is listed`)
      },
    },
    {
      name: 'a watcher of a line hears that it may have changed: a grant, a release, a hand-off',
      needs: [watches],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        let heard = 0
        const watching = await other.watch?.(key, () => {
          heard += 1
        })
        const hears = async (what: string, change: () => Promise<unknown>): Promise<void> => {
          const before = heard
          await change()
          await scene.eventually(`word of ${what}`, () => heard > before)
        }
        const [first, second] = [scene.claim(key), scene.claim(key)]
        await hears('a grant', () => one.enter([first]))
        await one.enter([second])
        await hears('a hand-off', () => one.leave([first]))
        await hears('a release', () => one.leave([second]))
        await watching?.[Symbol.asyncDispose]()
      },
    },
  ],
}
