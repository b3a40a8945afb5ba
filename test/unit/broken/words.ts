/** Engines that say the wrong thing, or nothing: answers, news, evictions, and what they leave behind. */
import { delegate } from '../../../conformance/delegate.ts'
import type { World } from '../../../conformance/index.ts'
import type { Claim, Engine, LineEntry, News, Place, Standing } from '../../../src/core/engine.ts'
import { EngineError } from '../../../src/core/errors.ts'
import { MemoryServer, memory } from '../../../src/engines/memory/index.ts'
import { answering, claiming, type Defect, defect } from './defect.ts'

const silent = async (): Promise<AsyncDisposable> => ({ async [Symbol.asyncDispose]() {} })

/** A server that never forgets a key that was used. */
function hoarding(): World {
  const server = new MemoryServer()
  const used = new Set<string>()
  return {
    engine() {
      const engine = memory({ server })
      return delegate(
        engine,
        claiming(engine, (claim) => {
          used.add(claim.key)
          return claim
        }),
      )
    },
    leftovers: () => [...used],
  }
}

async function evictFront(engine: Engine, key: string, how: 'expire' | 'now'): Promise<boolean> {
  const [front] = (await engine.inspect(key)).entries
  return front?.token == null ? false : engine.evict(key, front.token, how)
}

const inLineOf =
  (key: string) =>
  ({ id, ttlMs }: LineEntry): Place => ({ key, id, ttlMs })

export const wordDefects: readonly Defect[] = [
  defect(
    'answers a batch from its end',
    [
      'answers come in the order of the questions, whatever each of them is',
      'two claims of one key in one batch: the first holds, the second waits',
    ],
    (engine) => ({
      enter: async (claims, signal) => [...(await engine.enter(claims, signal))].reverse(),
      renew: async (places, signal) => [...(await engine.renew(places, signal))].reverse(),
    }),
  ),
  defect(
    'fails a whole batch for one claim too many',
    ['a claim too many fails alone: the others of its batch are served'],
    (engine) => ({
      async enter(claims, signal) {
        const standings = await engine.enter(claims, signal)
        const failed = standings.find(({ state }) => state === 'failed')
        if (failed !== undefined) throw new EngineError('memory', 'full', { outcome: 'not-applied' })
        return standings
      },
    }),
  ),
  defect(
    'lets a line grow without end',
    ['10000 waiters, or as many as the line takes, are served in order, and one more is refused'],
    (engine) =>
      answering(engine, (standing) => (standing.state === 'failed' ? { state: 'waiting', ahead: null } : standing)),
    { limitMs: 6_000 },
  ),
  defect(
    'forgets a claim of a full batch',
    ['a full batch of enters, renewals and leaves is answered in full'],
    (engine) => ({
      enter: async (claims, signal) => {
        const standings = await engine.enter(claims.slice(0, 999), signal)
        return claims.map((_, index) => standings[index] ?? { state: 'waiting', ahead: null })
      },
    }),
  ),
  defect(
    'sends no news',
    [
      'a release wakes the next waiter: no waiter waits for a poll',
      'readers behind a cancelled writer are woken, not left to their next renewal',
      'a release for later wakes the next one when that time is over, and not at a poll, or at the old expiry',
      'when the first waiter goes, the next one looks in its place: it is let in as soon as the holder expires',
      'a holder that is evicted is told at once, and the next one holds when its work has ended, and not after a ttl',
    ],
    () => ({ subscribe: silent }),
  ),
  defect(
    'goes on looking after a waiter that has left',
    ['a waiter that leaves while its renewal is on the way is not heard of again'],
    (engine) => {
      let hear: (news: News) => void = () => undefined
      return {
        async subscribe(listener) {
          hear = listener
          return (await engine.subscribe?.(listener)) as AsyncDisposable
        },
        async renew(places, signal) {
          for (const { key, id } of places) setTimeout(() => hear({ key, id }), 600)
          return await engine.renew(places, signal)
        },
      }
    },
  ),
  defect(
    'lets the end of one subscription end the next',
    ['ending a subscription that was given up does not silence the one that came after it'],
    (engine) => {
      const heard = new Set<(news: News) => void>()
      return {
        async subscribe(listener) {
          heard.add(listener)
          await engine.subscribe?.((news) => {
            for (const hear of heard) hear(news)
          })
          return { [Symbol.asyncDispose]: async () => heard.clear() }
        },
      }
    },
  ),
  defect(
    'does not tell of a grant when it is asked',
    [
      'a lost wake-up costs time and nothing else: every renewal of a waiter is also its poll',
      'after a gap in the news every waiter looks for itself',
      'who does not renew is gone, and the next in line holds',
    ],
    (engine) => {
      const waiting = new Set<string>()
      // A waiter that has expired in line, on a busy machine, is not told of its grant when it enters again either.
      const waitedFor = new Set<string>()
      return {
        async enter(claims, signal) {
          const standings = await engine.enter(claims, signal)
          return standings.map((standing, index) => {
            const { key, id } = claims[index] as Claim
            if (standing.state !== 'waiting' && !(standing.state === 'held' && waitedFor.has(key))) return standing
            waiting.add(id)
            waitedFor.add(key)
            return { state: 'waiting', ahead: null }
          })
        },
        renew: async (places, signal) =>
          (await engine.renew(places, signal)).map((standing, index) =>
            standing.state === 'held' && waiting.has(places[index]?.id ?? '')
              ? { state: 'waiting', ahead: null }
              : standing,
          ),
      }
    },
  ),
  defect(
    'counts the time in line as held',
    ['for how long an entry has held is counted from its grant, not from when it came'],
    (engine) => ({
      inspect: async (key) => {
        const { entries } = await engine.inspect(key)
        const held = entries.map((entry) => (entry.state === 'held' ? { ...entry, heldMs: entry.ageMs } : entry))
        return { key, entries: held }
      },
    }),
  ),
  defect(
    'does not tell watchers',
    ['a watcher of a line hears that it may have changed: a grant, a release, a hand-off'],
    () => ({ watch: silent }),
  ),
  defect(
    'does not show that a holder was evicted',
    ['a holder that was evicted by expiry is shown as evicted, and the others are not'],
    (engine) => ({
      async inspect(key) {
        const line = await engine.inspect(key)
        const entries = line.entries.map((entry) => {
          const { evicted: _, ...rest } = entry
          return rest
        })
        return { ...line, entries }
      },
    }),
  ),
  defect(
    'evicts the holder, whatever the token',
    ['eviction goes by the token: another one, or that of another key, evicts no entry'],
    (engine) => ({
      evict: (key, _token, how) => evictFront(engine, key, how),
    }),
  ),
  defect(
    'does not say why an entry is gone',
    [
      'evicting now frees the line at once, and the evicted one is told why',
      'a waiter that is evicted gives up instead of coming back',
      'a holder that is evicted learns of it: its signal aborts and its work is told',
    ],
    (engine) =>
      answering(
        engine,
        (standing): Standing => (standing.state === 'gone' ? { state: 'gone', why: 'unknown' } : standing),
      ),
  ),
  defect(
    'frees at once what should expire',
    ['evicting by expiry refuses renewals, and lets the next one in only when the holder must have noticed'],
    (engine) => ({ evict: (key, token) => engine.evict(key, token, 'now') }),
  ),
  defect(
    'keeps an evicted holder in line until it expires',
    [
      'a holder that is evicted is told at once, and the next one holds when its work has ended, and not after a ttl',
      'an evicted holder that leaves frees the line at once, and is answered that it was there',
    ],
    (engine) => ({
      leave: async (places) => {
        const answers: boolean[] = []
        for (const place of places) {
          const { entries } = await engine.inspect(place.key)
          const [standing] = await engine.renew(entries.filter(({ id }) => id === place.id).map(inLineOf(place.key)))
          answers.push(standing?.state === 'gone' ? false : ((await engine.leave([place]))[0] ?? false))
        }
        return answers
      },
    }),
  ),
  defect(
    'never lets the event loop turn',
    ['a loop of locks that are free lets the event loop turn: timers fire, and other leases are renewed'],
    (_, server) => ({
      enter: async (claims) => server.enter(claims, { listener: undefined }),
      leave: async (places) => server.leave(places),
    }),
    { because: /has not fired/ },
  ),
  defect(
    'lets expire what should be freed at once',
    [
      'evicting now frees the line at once, and the evicted one is told why',
      'a token is higher than every earlier one of its key: after release, expiry and eviction, and when the line was empty',
    ],
    (engine) => ({ evict: (key, token) => engine.evict(key, token, 'expire') }),
  ),
  defect(
    'says that it evicts, and does not',
    [
      'losing one part while waiting for the next gives back everything',
      'a writer that is evicted between readers lets the readers behind it in',
      'a waiter that is evicted, either way, is out of the line at once: it holds nothing that it would have to stop first',
      'a leader that loses its term campaigns again, if asked to, and leads with a higher one',
      'evicting now frees the line at once, and the evicted one is told why',
    ],
    () => ({ evict: async () => true }),
  ),
  defect('keeps listening to signals', ['an engine keeps no listener on the signals it is given'], (engine) => ({
    enter(claims, signal) {
      signal?.addEventListener('abort', () => {})
      return engine.enter(claims, signal)
    },
  })),
  { name: 'hoards keys', fails: ['the server stores nothing for lines without entries'], world: hoarding },
  defect(
    'keeps the process busy',
    ['after 10000 cycles of acquire, cancel and release: no timer, no socket, no listener, no entry, nothing stored'],
    (engine) =>
      claiming(engine, (claim) => {
        setTimeout(() => {}, 30_000)
        return claim
      }),
    { limitMs: 30_000, because: /no more resources/ },
  ),
]
