/** Engines that are wrong about coming and going: entering twice, renewing, expiring, leaving, evicting. */
import { systemClock } from '../../../src/core/clock.ts'
import type { Claim, Engine, Standing } from '../../../src/core/engine.ts'
import { answering, claiming, type Defect, defect } from './defect.ts'

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
      'mutex: whoever comes second waits until the first releases, and a try is told that it is taken',
      'two claims of one key in one batch: the first holds, the second waits',
      'a caller whose signal aborts during its work still releases',
      'a waiter that is cancelled while its enter is on the way: what arrives is given back',
      'a cancellation that races with the grant: the lock is had or given back, never lost',
      'an enter whose reply was lost (applied) and that is given up is cleaned up',
      'an enter whose reply was lost (not applied) is asked again, and is one entry',
      'a release whose reply was lost (applied) frees the lock all the same, and does not throw',
      'a release whose reply was lost (not applied) frees the lock all the same, and does not throw',
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
    'brings back with a renewal what is gone',
    [
      'a renewal never brings back what has expired, however often it is tried',
      'a late renewal of the old holder does not take the lock from the new one',
      'a renewal never outlives a release, also when both are on their way at once',
      'who does not renew is gone, and the next in line holds',
    ],
    (engine) => {
      const claims = new Map<string, Claim>()
      return {
        ...claiming(engine, (claim) => {
          claims.set(claim.id, claim)
          return claim
        }),
        async renew(places, signal) {
          const standings: Standing[] = []
          for (const place of places) {
            const claim = claims.get(place.id)
            standings.push(
              ...(claim === undefined ? await engine.renew([place], signal) : await engine.enter([claim], signal)),
            )
          }
          return standings
        },
      }
    },
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
  defect(
    'never lets anything expire',
    [
      'who does not renew is gone, and the next in line holds',
      'takeover: the release of the old holder changes nothing, that of the new one frees the line',
      'mutex: a holder that dies is followed by the next in line',
      'semaphore of 5 with four drained: a holder that dies is followed by the next in line',
      'a waiter that dies in line does not hold up those behind it for longer than its ttl',
      'a leader that dies is followed by the next in line',
      'an observer sees that a dead leader leads no more, though nobody says so',
      'a writer that expires between readers lets the readers behind it in',
      'what has expired is seen by nobody, also when nobody has touched the line since',
      'an expiry wakes the next one, or lets it find out by itself',
    ],
    (engine) => claiming(engine, (claim) => ({ ...claim, ttlMs: 3_600_000 })),
  ),
  defect(
    'lets the next one in before the holder can know',
    ['mutex: a holder that dies is followed by the next in line'],
    (engine) => ({
      enter: async (claims, signal) =>
        (
          await engine.enter(
            claims.map((claim) => ({ ...claim, ttlMs: claim.ttlMs / 2 })),
            signal,
          )
        ).map((standing, index) =>
          standing.state === 'held' ? { ...standing, heldForMs: claims[index]?.ttlMs ?? 0 } : standing,
        ),
    }),
  ),
  defect(
    'starts the ttl anew with a grant',
    ['a grant does not change when the entry expires: only its owner does'],
    (engine) => ({
      async leave(places) {
        const answers = await engine.leave(places)
        for (const { key } of places)
          await engine.renew((await engine.inspect(key)).entries.slice(0, 1).map((entry) => ({ ...entry, key })))
        return answers
      },
    }),
  ),
  defect(
    'lets a waiter expire only after it was granted',
    [
      'several dead waiters of one age delay the line by one ttl, not by one each',
      'a writer that expires between readers lets the readers behind it in',
    ],
    (engine) => {
      const ttls = new Map<string, number>()
      return {
        async enter(claims, signal) {
          const standings = await engine.enter(claims, signal)
          const waiting = claims.filter((_, index) => standings[index]?.state === 'waiting')
          for (const { id, ttlMs } of waiting) ttls.set(id, ttlMs)
          await engine.renew(waiting.map((place) => ({ ...place, ttlMs: 3_600_000 })))
          return standings
        },
        async inspect(key) {
          const { entries } = await engine.inspect(key)
          for (const { id, state } of entries) {
            const ttlMs = ttls.get(id)
            if (state !== 'held' || ttlMs === undefined) continue
            await engine.renew([{ key, id, ttlMs }])
            ttls.delete(id)
          }
          return engine.inspect(key)
        },
      }
    },
  ),
  defect(
    'expires a holder by the ttl of whoever asks',
    ['an entry lives by its own ttl, not by that of whoever asks next'],
    (engine) => ({
      async enter(claims, signal) {
        const standings = await engine.enter(claims, signal)
        for (const { key, ttlMs } of claims) {
          const [front] = (await engine.inspect(key)).entries
          if (front !== undefined) await engine.renew([{ key, id: front.id, ttlMs }])
        }
        return standings
      },
    }),
  ),
  defect(
    'forgets that an entry is to outlive its owner',
    ['what is released for later is not cut short by a renewal from before that comes late'],
    (engine) => ({
      renew: (places, signal) =>
        engine.renew(
          places.map(({ key, id, ttlMs }) => ({ key, id, ttlMs })),
          signal,
        ),
    }),
  ),
  defect(
    'renews for the ttl of the enter',
    [
      'a renewal sets the expiry anew, to the ttl that it names',
      'a key that is released for later stays busy until then, and no longer',
    ],
    (engine) => {
      const ttls = new Map<string, number>()
      return {
        ...claiming(engine, (claim) => {
          ttls.set(claim.id, claim.ttlMs)
          return claim
        }),
        renew: (places, signal) =>
          engine.renew(
            places.map((place) => ({ ...place, ttlMs: ttls.get(place.id) ?? place.ttlMs })),
            signal,
          ),
      }
    },
  ),
  defect(
    'renews nothing, and says that it did',
    [
      'renewals keep a lease, and a place in line, for longer than the ttl',
      'a renewal sets the expiry anew, to the ttl that it names',
    ],
    (engine) => ({
      async renew(places) {
        const standings: Standing[] = []
        for (const { key, id, ttlMs } of places) {
          const entry = (await engine.inspect(key)).entries.find((one) => one.id === id)
          if (entry === undefined) standings.push({ state: 'gone', why: 'unknown' })
          else if (entry.state === 'waiting') standings.push({ state: 'waiting', ahead: null })
          else standings.push({ state: 'held', token: entry.token, heldForMs: ttlMs })
        }
        return standings
      },
    }),
    { limitMs: 6_000, because: /expected (?:busy|held), got|Expected values/ },
  ),
  defect('forgets a try that succeeded', ['a try that succeeds holds like any other'], (engine) => ({
    async enter(claims, signal) {
      const standings = await engine.enter(claims, signal)
      await engine.leave(claims.filter(({ wait }) => !wait))
      return standings
    },
  })),
  defect(
    'says that it holds for longer than it does',
    ['who does not renew is gone, and the next in line holds'],
    (engine) =>
      answering(engine, (standing) =>
        standing.state === 'held' ? { ...standing, heldForMs: standing.heldForMs + 1000 } : standing,
      ),
  ),
  defect(
    'frees the front of the line whoever leaves',
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
  defect(
    'keeps time by the wall clock',
    [
      'a wall clock that jumps an hour ahead does not end a lease, and does not prolong one',
      'a wall clock that jumps an hour back does not end a lease, and does not prolong one',
    ],
    () => ({}),
    { clock: { ...systemClock, now: () => Date.now() } },
  ),
]
