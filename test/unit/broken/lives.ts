/** Engines that are wrong about coming and going: entering, entering twice, leaving. */
import type { Engine, Standing } from '../../../src/core/engine.ts'
import { claiming, type Defect, defect } from './defect.ts'

/** Answer a leave at once, and do it in a minute. */
const leavesLate = (engine: Engine): Partial<Engine> => ({
  async leave(places) {
    setTimeout(() => void engine.leave(places), 60_000).unref()
    return places.map(() => true)
  },
})

const waits = (line: Awaited<ReturnType<Engine['inspect']>>, id: string): boolean =>
  line.entries.some((entry) => entry.id === id && entry.state === 'waiting')

export const lifeDefects: readonly Defect[] = [
  defect(
    'keeps a refused try in line',
    ['a try that is refused leaves no trace', 'all or nothing: a try that finds one of them taken keeps none of them'],
    (engine) => ({
      async enter(claims, signal) {
        const standings = await engine.enter(
          claims.map((claim) => ({ ...claim, wait: true })),
          signal,
        )
        return standings.map((standing, index) =>
          standing.state === 'waiting' && claims[index]?.wait === false ? { ...standing, state: 'busy' } : standing,
        )
      },
    }),
  ),
  defect(
    'keeps a waiter that has left in line',
    [
      'a cancelled writer between readers lets the readers behind it in',
      'readers behind a cancelled writer are woken, not left to their next renewal',
      'mutex: a waiter that gives up makes way for those behind it',
      'a wait that runs out says who was in the way, and leaves nothing in the line',
      'one signal cancels many waiters of many keys, and keeps no listener of them',
    ],
    (engine) => ({
      async leave(places) {
        const answers: boolean[] = []
        for (const place of places) {
          if (waits(await engine.inspect(place.key), place.id)) answers.push(true)
          else answers.push(...(await engine.leave([place])))
        }
        return answers
      },
    }),
  ),
  defect(
    'frees the line long after a release is answered',
    [
      'mutex: releasing twice is releasing once',
      'mutex: the second caller waits until the first releases, and a try is told that it is taken',
      'two claims of one key in one batch: the first holds, the second waits',
      'a caller whose signal aborts during its work still releases',
      'a waiter that is cancelled while its enter is on the way: what arrives is given back',
      'a cancellation that races with the grant: the lock is had or given back, never lost',
      'an enter whose reply was lost (applied) and that is given up is cleaned up',
      'an enter whose reply was lost (not applied) is asked again, and is one entry',
      'a release whose reply was lost (applied) frees the lock all the same, and does not throw',
      'a release whose reply was lost (not applied) frees the lock all the same, and does not throw',
      'at the end of its maxHold the work is told why, and the next one holds when it has ended',
      'a drain refuses those who wait and ask, and ends when its holders have given back what they hold',
      'a holder that does not end within the grace of a drain is told, and the next one holds at once',
    ],
    leavesLate,
  ),
  defect(
    'frees the line long after a leave is answered',
    ['an enter that arrives after it was given up, and says nothing, is taken out of the line before it expires'],
    leavesLate,
    { limitMs: 8_000, because: /it stood in line until/ },
  ),
  defect(
    'takes a second place for the same id',
    [
      'entering again with the same id renews and takes no second place',
      'one id twice in one batch is one entry',
      'an enter whose reply was lost (applied) is asked again, and is one entry',
      'a request that arrives twice counts once',
    ],
    (engine) => {
      const times = new Map<string, number>()
      const latest = ({ id }: { readonly id: string }): string =>
        times.get(id) === 1 ? id : `${id}${times.get(id) ?? ''}`
      return {
        ...claiming(engine, (claim) => {
          times.set(claim.id, (times.get(claim.id) ?? 0) + 1)
          return { ...claim, id: latest(claim) }
        }),
        renew: (places, signal) =>
          engine.renew(
            places.map((place) => ({ ...place, id: latest(place) })),
            signal,
          ),
        leave: (places) => engine.leave(places.map((place) => ({ ...place, id: latest(place) }))),
      }
    },
  ),
  defect(
    'does not renew when entered again',
    ['entering again with the same id renews and takes no second place'],
    (engine) => ({
      async enter(claims, signal) {
        const standings: Standing[] = []
        for (const claim of claims) {
          const { entries } = await engine.inspect(claim.key)
          const known = entries.find(({ id }) => id === claim.id)
          if (known === undefined) standings.push(...(await engine.enter([claim], signal)))
          else if (known.state === 'waiting') standings.push({ state: 'waiting', ahead: null })
          else standings.push({ state: 'held', token: known.token, heldForMs: claim.ttlMs })
        }
        return standings
      },
    }),
  ),
  defect('forgets a try that succeeded', ['a try that succeeds holds like any other'], (engine) => ({
    async enter(claims, signal) {
      const standings = await engine.enter(claims, signal)
      await engine.leave(claims.filter(({ wait }) => !wait))
      return standings
    },
  })),
  defect(
    'frees the front of the line, wherever the entry that leaves stands',
    [
      'takeover: the release of the old holder changes nothing, that of the new one frees the line',
      'answers come in the order of the questions, whatever each of them is',
    ],
    (engine) => ({
      async leave(places) {
        const answers: boolean[] = []
        for (const { key } of places) {
          const [front] = (await engine.inspect(key)).entries
          answers.push(...(front === undefined ? [false] : await engine.leave([{ key, id: front.id }])))
        }
        return answers
      },
    }),
  ),
]
