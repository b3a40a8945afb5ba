/** Engines whose store is wrong: what it stores, under which conditions, for how long, and what it answers. */
import type { Engine } from '../../../src/core/engine.ts'
import type { Change, Entered, Got, Put, Store, Stored, StoredSummary, When } from '../../../src/core/store.ts'
import { type Defect, defect } from './defect.ts'

const TRACE = 'random calls of a store are answered as the memory engine answers them'
const BYTES = 'what is put is read by every client, byte for byte, up to the largest value'
const ABSENT = 'absent: of many clients that put at once one is stored, and the others are told what it has stored'
const VERSION = 'version: a change is made only if no other came in between, and is told of the other'
const VERSIONS = 'each change has a higher version than all before it, also after a removal and after an expiry'
const MARK = 'mark: only a change with a higher one is made, and a change without one keeps it'
const REFUSED = 'a refused change changes nothing: neither value nor version, mark or expiry'
const BATCH = 'a full batch is answered in its order, each change by itself, also several of one key'
const EXPIRES = 'a record is there until its ttl is over, and is nothing from then on'
const TIMES = 'all answers tell the time of the server, also those about what was never put, or none does'
const LISTED = 'a listing names what is stored under a prefix, and nothing that was removed or has expired'
const REMOVED = 'a removal is not overwritten by a holder that had found the record, or had found nothing'
const HOLDS = 'holding: an entry that holds can put; one that waits, has left or never came cannot'
const ENTERED = 'entering: a free line is held and the record is stored, and the next one is told of both'
const NEITHER = 'entering: where the change is refused, nothing of the claim is in the line'
const FREE = 'entering: a line with a waiter is not free, and one whose holder has expired is'
const TWICE = 'entering: an entrance that arrives twice is made once, and is answered alike'
const MANY = 'entering: of many clients that enter at once one holds, and all are told what it has stored'
const ENTERED_BATCH = 'entering and leaving: a full batch is answered in its order, also several of one key'
const FOUND = 'leaving: the record is stored, the line is left, and the waiter holds and finds the record'
const STAYS = 'leaving: an entry whose change is refused stays in the line'
const RACES = 'holding: a change that races with the release never lands on that of the next holder'

/** A store of which something is overridden. */
function storing(engine: Engine, change: (store: Store) => Partial<Store>): Partial<Engine> {
  const store = engine.store as Store
  const passing: Store = {
    traits: store.traits,
    get: (keys) => store.get(keys),
    put: (changes) => store.put(changes),
    list: (prefix) => store.list(prefix),
    putEntering: async (entrances) => (await store.putEntering?.(entrances)) ?? [],
    putLeaving: async (leavings) => (await store.putLeaving?.(leavings)) ?? [],
  }
  return { store: Object.assign(passing, change(store)) }
}

/** Make other changes than were asked for. */
function changing(name: string, fails: readonly string[], change: (asked: Change) => Change): Defect {
  return defect(name, fails, (engine) =>
    storing(engine, (store) => ({ put: (changes) => store.put(changes.map(change)) })),
  )
}

/** The change, without one of its conditions. */
function without(change: Change, condition: keyof When): Change {
  const { [condition]: _, ...when } = change.when
  return { ...change, when }
}

/** Answer something else than what is stored, and than what was done. */
function telling(
  store: Store,
  see: (stored: Stored) => Stored,
  tell: (put: Put) => Put = (put) => put,
): Partial<Store> {
  return {
    get: async (keys) =>
      (await store.get(keys)).map((got): Got => (got.state === 'read' ? { ...got, stored: see(got.stored) } : got)),
    put: async (changes) =>
      (await store.put(changes)).map((put): Put => {
        return tell(put.state === 'refused' ? { ...put, stored: see(put.stored) } : put)
      }),
  }
}

async function* everything(store: Store): AsyncGenerator<StoredSummary> {
  yield* store.list('')
}

export const recordDefects: readonly Defect[] = [
  changing(
    'does not check who holds',
    [
      HOLDS,
      RACES,
      TRACE,
      'holding: a change that was held up on its way until another holds is refused',
      'holding: readers that hold together can all put, and the writer behind them cannot',
      'holding: a holder whose ttl is over cannot put, though no other has come',
      'holding: an evicted holder cannot put once the line is free',
      'holding and version: all conditions count, and the first that is not met is named',
    ],
    (change) => without(change, 'holding'),
  ),
  defect('checks who holds in a step before the change', [RACES], (engine) => {
    let calls = 0
    return storing(engine, (store) => ({
      async put(changes) {
        const puts: Put[] = []
        calls += 1
        for (const change of changes) {
          const { holding, ...when } = change.when
          const { entries } = await engine.inspect(change.key)
          const holds = entries.some(({ id, state }) => id === holding && state === 'held')
          // One takes longer than the other, as on any network.
          for (let turn = calls % 4; turn >= 0; turn -= 1) await new Promise((resolve) => setImmediate(resolve))
          puts.push(...(await store.put([holding === undefined || !holds ? change : { ...change, when }])))
        }
        return puts
      },
    }))
  }),
  defect('checks whether a record is there in a step before the change', [ABSENT], (engine) =>
    storing(engine, (store) => ({
      async put(changes) {
        const puts: Put[] = []
        for (const change of changes) {
          const { absent, ...when } = change.when
          const [got] = await store.get([change.key])
          const free = got?.state === 'read' && got.stored.value === null
          await new Promise((resolve) => setImmediate(resolve))
          puts.push(...(await store.put([absent === undefined || !free ? change : { ...change, when }])))
        }
        return puts
      },
    })),
  ),
  defect('forgets that a record was removed', [REMOVED, TRACE], (engine) =>
    storing(engine, (store) =>
      telling(store, (stored) => (stored.value === null ? { ...stored, version: 0n } : stored)),
    ),
  ),
  defect('does not raise the version with a removal', [REMOVED, VERSIONS], (engine) => {
    const last = new Map<string, bigint>()
    return storing(engine, (store) => ({
      async put(changes) {
        const puts = await store.put(changes)
        return puts.map((put, index) => {
          const { key, value } = changes[index] as Change
          if (put.state !== 'stored') return put
          if (value === null) return { ...put, version: last.get(key) ?? 0n }
          last.set(key, put.version)
          return put
        })
      },
    }))
  }),
  defect('numbers changes from 1 again when a record has gone', [VERSIONS], (engine) => {
    const first = new Map<string, bigint>()
    return storing(engine, (store) => ({
      async put(changes) {
        const got = await store.get(changes.map(({ key }) => key))
        got.forEach((one, index) => {
          if (one.state === 'read' && one.stored.value === null) first.delete((changes[index] as Change).key)
        })
        return (await store.put(changes)).map((put, index) => {
          if (put.state !== 'stored') return put
          const { key } = changes[index] as Change
          first.set(key, first.get(key) ?? put.version - 1n)
          return { ...put, version: put.version - (first.get(key) as bigint) }
        })
      },
    }))
  }),
  changing('does not look at versions', [VERSION, REFUSED, EXPIRES], (change) => without(change, 'version')),
  changing('does not look at marks', [MARK, REFUSED], (change) => without(change, 'markBelow')),
  changing('lets everything live for ever', [EXPIRES, LISTED, VERSIONS], (change) => ({ ...change, ttlMs: null })),
  changing('keeps values as text', [BYTES], ({ value, ...change }) => ({
    ...change,
    value: value === null ? null : Buffer.from(Buffer.from(value).toString()),
  })),
  defect('takes an empty value for none', [BYTES], (engine) =>
    storing(engine, (store) =>
      telling(store, (stored) => (stored.value?.length === 0 ? { ...stored, value: null } : stored)),
    ),
  ),
  defect('does not tell small letters from large ones', ['keys that look alike have records of their own'], (engine) =>
    storing(engine, (store) => ({
      get: (keys) => store.get(keys.map((key) => key.toLowerCase())),
      put: (changes) => store.put(changes.map((change) => ({ ...change, key: change.key.toLowerCase() }))),
    })),
  ),
  defect(
    'gives a number to what was never put',
    ['what was never put is nothing: no value, version 0, mark 0'],
    (engine) =>
      storing(engine, (store) =>
        telling(store, (stored) => (stored.version === 0n ? { ...stored, version: 1n } : stored)),
      ),
  ),
  defect('lists all records, whatever the prefix', [LISTED], (engine) =>
    storing(engine, (store) => ({ list: () => everything(store) })),
  ),
  defect('tells the time in seconds', [TIMES], (engine) =>
    storing(engine, (store) => ({
      put: async (changes) =>
        (await store.put(changes)).map((put) =>
          put.state === 'failed' ? put : { ...put, serverTimeMs: (put.serverTimeMs ?? 0) / 1000 },
        ),
    })),
  ),
  defect('stores the old value anew when it refuses a change', [REFUSED], (engine) =>
    storing(engine, (store) => ({
      async put(changes) {
        const puts = await store.put(changes)
        for (const put of puts) if (put.state === 'refused') await store.put([{ ...put.stored, ttlMs: null, when: {} }])
        return puts
      },
    })),
  ),
  defect('makes the changes of a batch from its end', [BATCH], (engine) =>
    storing(engine, (store) => ({ put: async (changes) => (await store.put(changes.toReversed())).toReversed() })),
  ),
  defect('lets the first ttl of a record decide', ['a change sets the expiry anew, or takes it away'], (engine) => {
    const first = new Map<string, number>()
    return storing(engine, (store) => ({
      put: (changes) =>
        store.put(
          changes.map((change) => {
            const { key, ttlMs } = change
            if (ttlMs !== null && !first.has(key)) first.set(key, ttlMs)
            return { ...change, ttlMs: first.get(key) ?? ttlMs }
          }),
        ),
    }))
  }),
  defect('removes the line with its record', ['a line and the record of its key do not disturb each other'], (engine) =>
    storing(engine, (store) => ({
      async put(changes) {
        for (const { key, value } of changes) {
          if (value !== null) continue
          const { entries } = await engine.inspect(key)
          await engine.leave(entries.map(({ id }) => ({ key, id })))
        }
        return store.put(changes)
      },
    })),
  ),
  defect('enters a line though the change is refused', [NEITHER, TRACE], (engine) =>
    storing(engine, () => ({
      putEntering: async (entrances) => {
        const entered: Entered[] = []
        for (const { claim, change } of entrances) {
          const [standing] = await engine.enter([claim])
          const [put] = await (engine.store as Store).put([{ ...change, when: { ...change.when, holding: claim.id } }])
          entered.push({ standing: standing as Entered['standing'], put: put as Put })
        }
        return entered
      },
    })),
  ),
  defect('changes the record though the line is not free', [ENTERED, MANY, ENTERED_BATCH, FREE], (engine) =>
    storing(engine, (store) => ({
      putEntering: async (entrances) => {
        const entered = (await store.putEntering?.(entrances)) ?? []
        const busy = entrances.filter((_, index) => entered[index]?.standing.state === 'busy')
        await store.put(busy.map(({ change }) => ({ ...change, when: {} })))
        return entered
      },
    })),
  ),
  defect('forgets that an entrance has arrived before', [TWICE], (engine) =>
    storing(engine, (store) => ({
      async putEntering(entrances) {
        const lines = await Promise.all(entrances.map(({ claim }) => engine.inspect(claim.key)))
        const entered = (await store.putEntering?.(entrances)) ?? []
        return entered.map((one, index): Entered => {
          const { claim } = entrances[index] as (typeof entrances)[number]
          if (!lines[index]?.entries.some(({ id }) => id === claim.id)) return one
          const stored = { key: claim.key, value: null, version: 0n, mark: 0n, livesForMs: null }
          const put: Put = { state: 'refused', by: 'absent', stored, serverTimeMs: null }
          return { standing: { state: 'busy', ahead: 0 }, put }
        })
      },
    })),
  ),
  defect('leaves the line before the record is changed', [FOUND], (engine) =>
    storing(engine, (store) => ({
      async putLeaving(leavings) {
        await engine.leave(leavings.map(({ id, change: { key } }) => ({ key, id })))
        for (let turn = 0; turn < 200; turn += 1) await new Promise((resolve) => setImmediate(resolve))
        return store.put(leavings.map(({ change }) => change))
      },
    })),
  ),
  defect('leaves the line though the change is refused', [STAYS, TRACE], (engine) =>
    storing(engine, (store) => ({
      async putLeaving(leavings) {
        const puts = await store.put(leavings.map(({ change }) => change))
        await engine.leave(leavings.map(({ id, change: { key } }) => ({ key, id })))
        return puts
      },
    })),
  ),
]
