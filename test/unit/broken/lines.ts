/** Engines whose lines are wrong: who holds, in what order, under which key, with which token. */
import { type Claim, type Engine, type LineEntry, UNLIMITED } from '../../../src/core/engine.ts'
import { answering, claiming, type Defect, defect, renaming } from './defect.ts'

/** Put a claim in front of those who wait, by sending them to the back. */
async function overtake(
  engine: Engine,
  claims: Map<string, Claim>,
  claim: Claim,
  signal?: AbortSignal,
): ReturnType<Engine['enter']> {
  const { entries } = await engine.inspect(claim.key)
  const waiting = entries.filter(({ state }) => state === 'waiting').map(({ id }) => claims.get(id) as Claim)
  await engine.leave(waiting)
  const standings = await engine.enter([claim], signal)
  await engine.enter(waiting)
  return standings
}

/** Let some claims overtake. */
function overtaking(name: string, fails: readonly string[], who: (claim: Claim) => boolean): Defect {
  const claims = new Map<string, Claim>()
  return defect(name, fails, (engine) => ({
    async enter(asked, signal) {
      const standings = []
      for (const claim of asked) {
        const known = claims.has(claim.id)
        claims.set(claim.id, { ...claim, wait: true })
        standings.push(
          ...(who(claim) && !known
            ? await overtake(engine, claims, claim, signal)
            : await engine.enter([claim], signal)),
        )
      }
      return standings
    },
  }))
}

async function* filtered(engine: Engine, wanted: (key: string) => boolean): ReturnType<Engine['list']> {
  for await (const summary of engine.list('')) if (wanted(summary.key)) yield summary
}

export const lineDefects: readonly Defect[] = [
  defect(
    'grants one more than the limit',
    [
      'mutex: never two holders at once, and no update is lost, however many ask',
      'mutex: the second caller waits until the first releases, and a try is told that it is taken',
      'semaphore of 1: never two holders at once, and no update is lost, however many ask',
      'semaphore of 5 with four drained: never two holders at once, and no update is lost, however many ask',
      'write lock: never two holders at once, and no update is lost, however many ask',
      'all of one: never two holders at once, and no update is lost, however many ask',
      'many callers that want overlapping keys in any order all get them in turn: none deadlocks, none meets another',
      'a semaphore is never overdrawn and never left idle by many clients with many weights',
      'a thousand tries at once give one lease, and the next try after its release another',
      'a full batch of enters, renewals and leaves is answered in full',
    ],
    (engine) => claiming(engine, (claim) => (claim.limit === UNLIMITED ? claim : { ...claim, limit: claim.limit + 1 })),
  ),
  overtaking(
    'serves the last to come first',
    [
      'mutex: waiters are served in the order in which they came, of whatever process',
      'a line stands in the order in which its entries came, whatever they ask for',
      'random calls are answered as the memory engine answers them',
    ],
    () => true,
  ),
  overtaking(
    'lets readers overtake a writer',
    ['no entry overtakes: a reader that came after a waiting writer waits, though it could hold'],
    ({ limit }) => limit === UNLIMITED,
  ),
  overtaking('lets a try overtake', ['a try does not overtake waiters'], ({ wait }) => !wait),
  defect(
    'takes every weight for 1',
    [
      'a semaphore holds weights up to its limit, and the next one waits for as much as it needs',
      'the largest weights and limits are counted, not wrapped around',
      'a line shows its holders and waiters as they described themselves',
      'a listing counts who holds and who waits',
    ],
    (engine) => claiming(engine, (claim) => ({ ...claim, weight: 1 })),
  ),
  defect('takes readers for writers', ['readers hold together, a writer alone'], (engine) =>
    claiming(engine, (claim) => ({ ...claim, limit: claim.limit === UNLIMITED ? 1 : claim.limit })),
  ),
  defect('wraps large weights around', ['the largest weights and limits are counted, not wrapped around'], (engine) =>
    claiming(engine, (claim) => ({ ...claim, weight: (claim.weight * 4) | 0 || 1 })),
  ),
  defect(
    'gives callers who disagree the wider limit',
    [
      'entries that disagree on the limit get the stricter of the two',
      'random calls are answered as the memory engine answers them',
    ],
    (engine) => claiming(engine, (claim) => (claim.limit === 2 ? { ...claim, limit: 4 } : claim)),
  ),
  defect(
    'reads keys without regard to case',
    [
      'keys that differ in any byte are different lines, and equal keys are one',
      'a listing has the lines whose key begins with the prefix, byte by byte, and no others',
    ],
    (engine) => renaming(engine, (key) => key.toLowerCase()),
  ),
  defect('trims keys', ['keys that differ in any byte are different lines, and equal keys are one'], (engine) =>
    renaming(engine, (key) => key.trimEnd()),
  ),
  defect(
    'composes the letters of keys',
    ['keys that differ in any byte are different lines, and equal keys are one'],
    (engine) => renaming(engine, (key) => key.normalize('NFC')),
  ),
  defect('cuts long keys', ['the shortest and the longest keys are keys like others'], (engine) =>
    renaming(engine, (key) => key.slice(0, 255)),
  ),
  defect(
    'lists by substring',
    ['a listing has the lines whose key begins with the prefix, byte by byte, and no others'],
    (engine) => ({
      list: (prefix) => filtered(engine, (key) => key.includes(prefix)),
    }),
  ),
  defect(
    'lists by pattern',
    ['a listing has the lines whose key begins with the prefix, byte by byte, and no others'],
    (engine) => ({
      list: (prefix) =>
        filtered(engine, (key) =>
          new RegExp(
            `^${prefix
              .replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')
              .replaceAll('%', '.*')
              .replaceAll('_', '.')}`,
            'su',
          ).test(key),
        ),
    }),
  ),
  defect('lists lines without entries', ['a line without entries is empty and is not listed'], (engine) => {
    const used = new Set<string>()
    return {
      ...claiming(engine, (claim) => {
        used.add(claim.key)
        return claim
      }),
      async *list(prefix) {
        for (const key of used) if (key.startsWith(prefix)) yield { key, held: 0, waiting: 0 }
      },
    }
  }),
  defect(
    'begins tokens again after a while',
    [
      'mutex: each holder has a higher token than the one before, over release, cancellation and an empty line',
      'a token is higher than every earlier one of its key: after release, expiry and eviction, and when the line was empty',
      'tokens go on when every client has gone and new ones come',
      'tokens ascend in the order of the line, also for entries that still wait',
      'one leads at a time, in order, each term higher than the last, and every process can see who',
    ],
    () => ({}),
    { mint: (previous) => (previous === 2n ? 1n : previous + 1n) },
  ),
  defect(
    'gives one token to two claims of a batch',
    [
      'two claims of one key in one batch have different tokens',
      'each reader has a token of its own, higher than those before it',
    ],
    () => ({}),
    { mint: () => 7n },
  ),
  defect('mints a new token with every answer', ['renewing and entering again do not change the token'], (engine) => {
    let more = 0n
    return answering(engine, (standing) => {
      more += 1n
      return standing.state === 'held' && standing.token !== null
        ? { ...standing, token: standing.token + more }
        : standing
    })
  }),
  defect(
    'hands the token of the holder before to the next one',
    ['the token that a waiter is granted with is its own, and higher than that of the holder before it'],
    (engine) => ({
      renew: async (places, signal) =>
        (await engine.renew(places, signal)).map((standing) =>
          standing.state === 'held' ? { ...standing, token: 1n } : standing,
        ),
    }),
  ),
  defect(
    'cuts the names of holders',
    ['a line shows its holders and waiters as they described themselves'],
    (engine) => ({
      async inspect(key) {
        const { entries } = await engine.inspect(key)
        return { key, entries: entries.map((entry: LineEntry) => ({ ...entry, holder: entry.holder.slice(0, 255) })) }
      },
    }),
  ),
  defect(
    'shows every line as empty',
    [
      'an observer sees who leads, the change, and that there is no leader',
      'one leads at a time, in order, each term higher than the last, and every process can see who',
    ],
    () => ({ inspect: async (key) => ({ key, entries: [] }) }),
  ),
  defect('leaves out waiters from listings', ['a listing counts who holds and who waits'], (engine) => ({
    async *list(prefix) {
      for await (const summary of engine.list(prefix)) yield { ...summary, waiting: 0 }
    },
  })),
]
