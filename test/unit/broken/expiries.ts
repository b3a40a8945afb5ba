/** Engines that are wrong about time: renewing, expiring, and how long a holder may believe that it holds. */
import { systemClock } from '../../../src/core/clock.ts'
import type { Claim, Standing } from '../../../src/core/engine.ts'
import { EngineError } from '../../../src/core/errors.ts'
import { answering, claiming, type Defect, defect } from './defect.ts'

function refusal(): EngineError {
  return new EngineError('memory', 'not for so long', { outcome: 'not-applied' })
}

export const expiryDefects: readonly Defect[] = [
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
    'never lets anything expire',
    [
      'who does not renew is gone, and the next in line holds',
      'takeover: the release of the old holder changes nothing, that of the new one frees the line',
      'mutex: a holder that dies is followed by the next in line',
      'semaphore of 5 with four drained: a holder that dies is followed by the next in line',
      'a waiter that dies in line does not hold up those behind it for longer than its ttl',
      'a leader that dies is followed by the next in line',
      'an observer sees that a dead leader leads no more, though no process says so',
      'a maxHold ends while the server cannot be reached, too, and the next one holds when the ttl is over',
      'a drain ends while the server cannot be reached, too, and the next one holds when the ttl is over',
      'a writer that expires between readers lets the readers behind it in',
      'what has expired is not seen any more, also when no call has changed the line since',
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
    'keeps busy for later what it says it cannot keep busy',
    ['what the engine cannot keep busy for so long is free when its ttl is over, though its process goes on'],
    (engine) => ({
      renew: async (places, signal) =>
        (await engine.renew(places, signal)).map((standing, index) =>
          places[index]?.outlives === true ? { state: 'failed', error: refusal() } : standing,
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
    'expires a holder by the ttl of the caller that asks',
    ['an entry lives by its own ttl, not by that of the next one in line'],
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
  defect(
    'says that it holds for longer than it does',
    ['who does not renew is gone, and the next in line holds'],
    (engine) =>
      answering(engine, (standing) =>
        standing.state === 'held' ? { ...standing, heldForMs: standing.heldForMs + 1000 } : standing,
      ),
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
