/** Engines whose rate limits are wrong. */
import type { Engine } from '../../../src/core/engine.ts'
import { longestBookUs } from '../../../src/core/rate.ts'
import type { Store } from '../../../src/core/store.ts'
import type { Draw, Drawn } from '../../../src/core/store-take.ts'
import { drawFromRecords } from '../../../src/engines/shared/rate-records.ts'
import { type Defect, defect } from './defect.ts'

const TRACE = 'draws from rate limits are answered to the unit as the rule says, at the time that the server tells'
const REFUSED = 'a draw that is refused, or only looks, leaves the record as it was'
const AT_ONCE = 'clients that draw at once are let through as if they had come one after the other'
const STRANGE = 'a draw from a key under which something else is stored fails, leaves that alone, and fails by itself'

type Take = (store: Store, draws: readonly Draw[]) => Promise<readonly Drawn[]>

function taking(name: string, fails: readonly string[], take: Take): Defect {
  return defect(name, fails, (engine: Engine) => {
    const store = engine.store as Store
    const broken: Store = {
      traits: store.traits,
      get: (keys) => store.get(keys),
      put: (changes) => store.put(changes),
      take: (draws) => take(store, draws),
      list: (prefix) => store.list(prefix),
    }
    return { store: broken }
  })
}

const rightly: Take = (store, draws) => (store.take as NonNullable<Store['take']>)(draws)

/** As the memory engine does it, but with an await between reading and writing. */
const inTwoSteps: Take = async (store, draws) => {
  const [first] = await rightly(store, [{ parts: [], bookUs: 0 }])
  const keys = [...new Set(draws.flatMap(({ parts }) => parts.map(({ key }) => key)))]
  const values = new Map<string, Uint8Array | null>()
  for (const got of await store.get(keys)) if (got.state === 'read') values.set(got.stored.key, got.stored.value)
  const writes: (() => Promise<unknown>)[] = []
  const records = {
    read: (key: string) => values.get(key) ?? null,
    write: (key: string, value: Uint8Array, ttlMs: number) => {
      values.set(key, value)
      writes.push(() => store.put([{ key, value, ttlMs, when: {} }]))
    },
  }
  const drawn = drawFromRecords('memory', records, draws, first?.state === 'drawn' ? first.nowUs : 0)
  for (const write of writes) await write()
  return drawn
}

export const drawDefects: readonly Defect[] = [
  taking('lets a refused draw consume what it wanted', [TRACE, REFUSED], async (store, draws) => {
    const answers: Drawn[] = []
    for (const draw of draws) {
      const [drawn] = await rightly(store, [draw])
      if (drawn?.state === 'drawn' && !drawn.taken) {
        const bookUs = Math.min(...draw.parts.map(({ rate }) => longestBookUs(rate)))
        await rightly(store, [{ ...draw, bookUs }])
      }
      answers.push(drawn as Drawn)
    }
    return answers
  }),
  taking('rounds the interval between two down to microseconds', [TRACE], (store, draws) =>
    rightly(
      store,
      draws.map((draw) => ({
        ...draw,
        parts: draw.parts.map((part) => {
          const { tokenUnits, stepUnits, stepUs, capacity } = part.rate
          const interval = Math.max(1, Math.floor(tokenUnits / stepUnits))
          return {
            ...part,
            rate: { tokenUnits: interval, stepUnits: 1, stepUs, capacity: (capacity / tokenUnits) * interval },
          }
        }),
      })),
    ),
  ),
  taking('goes by another clock than it tells', [TRACE], async (store, draws) => {
    const answers = await rightly(store, draws)
    return answers.map((drawn) =>
      drawn.state === 'drawn' ? { ...drawn, nowUs: drawn.nowUs + 1000 * (drawn.nowUs % 7) } : drawn,
    )
  }),
  taking('takes from one key though another refuses', [TRACE, REFUSED], async (store, draws) => {
    const answers: Drawn[] = []
    for (const { parts, bookUs } of draws) {
      const each = await rightly(
        store,
        parts.map((part) => ({ parts: [part], bookUs })),
      )
      const drawn = each.filter((one) => one.state === 'drawn')
      const debts = drawn.flatMap((one) => one.debts)
      answers.push({
        state: 'drawn',
        taken: drawn.every(({ taken }) => taken),
        debts,
        nowUs: drawn[0]?.nowUs ?? 0,
      })
    }
    return answers
  }),
  taking('reads and writes in two steps', [AT_ONCE], inTwoSteps),
  taking('counts anew where it does not know what is stored', [STRANGE], async (store, draws) => {
    const answers: Drawn[] = []
    for (const draw of draws) {
      const [drawn] = await rightly(store, [draw])
      if (drawn?.state === 'failed')
        for (const { key } of draw.parts) await store.put([{ key, value: null, ttlMs: null, when: {} }])
      answers.push(drawn?.state === 'failed' ? ((await rightly(store, [draw]))[0] as Drawn) : (drawn as Drawn))
    }
    return answers
  }),
]
