/**
 * Many callers on one lock, or on locks of many kinds, while their ways to the servers, and the servers, are in
 * trouble: what is counted, and what may never be seen. The tests of an engine say who the clients are, and what the
 * trouble is.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Dice, dice } from '../../conformance/chance.ts'
import { UNLIMITED } from '../../src/core/engine.ts'
import type { Lease, LineAcquireOptions, Lock, Locks } from '../../src/index.ts'
import { RecordStore } from '../../src/store/record-store.ts'
import type { FaultProxy } from '../servers/proxy.ts'

export interface Fight {
  /** Each with locks of its own. */
  readonly clients: readonly Locks[]
  readonly callersOfEach: number
  readonly grants: number
  readonly seed: number
  /** One piece of trouble, and its end. Asked for again and again, by two at a time. */
  trouble(chance: Dice): Promise<void>
}

/** What is seen in a fight. */
class Sight {
  readonly wrong: string[] = []
  readonly #grants: number
  granted = 0

  constructor({ grants }: Fight) {
    this.#grants = grants
  }

  get goesOn(): boolean {
    return this.granted < this.#grants && this.wrong.length === 0
  }
}

/** One mutex. What went wrong: two holders who both believe it, or a token that is not above all before it. */
export async function fightFor(key: string, fight: Fight): Promise<readonly string[]> {
  const sight = new Sight(fight)
  let highest = 0n
  let holder: Lease | undefined
  await fought(fight, sight, ['ENGINE'], async (locks) => {
    const lease = await locks.mutex(key).acquire()
    const token = lease.token ?? 0n
    // It may have lost it again, if this process was slow.
    if (!lease.held) return
    sight.granted += 1
    if (holder?.held === true) sight.wrong.push(`${token} was let in beside ${holder.token}`)
    if (token <= highest) sight.wrong.push(`${token} after ${highest}`)
    holder = lease
    highest = token
    if (sight.granted % 7 === 0) await sleep(1)
    if (holder === lease) holder = undefined
    await lease.release()
  })
  return sight.wrong
}

const KEYS = 6
const KINDS: readonly { readonly limit: number; of(locks: Locks, key: string): Lock<LineAcquireOptions> }[] = [
  { limit: 1, of: (locks, key) => locks.mutex(key) },
  { limit: UNLIMITED, of: (locks, key) => locks.rw(key).read },
  { limit: UNLIMITED, of: (locks, key) => locks.rw(key).read },
  { limit: 3, of: (locks, key) => locks.semaphore(key, 3) },
]

interface Holding {
  readonly lease: Lease
  readonly limit: number
}

/** Locks of many kinds, in batches. What went wrong: more holders beside each other than one of them allows. */
export async function fightOverKinds(fight: Fight): Promise<readonly string[]> {
  const sight = new Sight(fight)
  const chance = dice(fight.seed + 1)
  const lines = Array.from({ length: KEYS }, () => new Set<Holding>())

  const granted = (key: number, holding: Holding): void => {
    const line = lines[key] as Set<Holding>
    for (const other of line) if (!other.lease.held) line.delete(other)
    line.add(holding)
    sight.granted += 1
    if (line.size <= Math.min(...[...line].map(({ limit }) => limit))) return
    const shown = [...line].map(({ lease, limit }) => `${lease.token} of ${limit}`)
    sight.wrong.push(`key ${key}: ${shown.join(' beside ')}`)
  }

  const once = async (locks: Locks): Promise<void> => {
    const key = chance.below(KEYS)
    const kind = chance.pick(KINDS)
    const lock = kind.of(locks, `line ${key}`)
    const lease = chance.oneIn(3) ? await lock.tryAcquire() : await lock.acquire({ wait: '30s' })
    if (lease?.held !== true) return
    const holding = { lease, limit: kind.limit }
    granted(key, holding)
    if (chance.oneIn(3)) await sleep(chance.below(5))
    lines[key]?.delete(holding)
    await lease.release()
  }

  // Several at once: they go out in one batch.
  await fought(fight, sight, ['ENGINE', 'ACQUIRE_TIMEOUT'], async (locks) => {
    await Promise.all(Array.from({ length: 4 }, () => once(locks)))
  })
  // What still stands in a line now, of a client that lives, would block it for ever.
  for (const [key] of lines.entries())
    await (await (fight.clients[0] as Locks).mutex(`line ${key}`).acquire({ wait: '30s' })).release()
  return sight.wrong
}

/** `by` tells two changes apart that are alike otherwise. */
interface Counted {
  readonly sum: number
  readonly token: string
  readonly by: string
}

/** Holders count in a record. What went wrong: an update that was lost, or one of a holder before the last. */
export async function fightOverRecord(key: string, fight: Fight): Promise<readonly string[]> {
  const sight = new Sight(fight)
  const records = new Map(fight.clients.map((locks) => [locks, new RecordStore<Counted>('fight', locks, {})]))
  let unknown = 0
  await fought(fight, sight, ['ENGINE'], async (locks) => {
    const record = records.get(locks) as RecordStore<Counted>
    const lease = await locks.mutex(key).acquire()
    try {
      const { value = { sum: 0, token: '0', by: '' }, version } = await record.get(key)
      const next = { sum: value.sum + 1, token: String(lease.token), by: randomUUID() }
      // A holder whose time is over by now is refused.
      const put = await record.put(key, next, { holding: lease, version, ttlMs: 600_000 })
      if (put.state !== 'stored') return
      sight.granted += 1
      if (BigInt(value.token) > BigInt(next.token)) sight.wrong.push(`${next.token} after ${value.token}`)
    } catch (error) {
      if ((error as { outcome?: string }).outcome === 'unknown') unknown += 1
      throw error
    } finally {
      await lease.release()
    }
  })
  const { value } = await (records.get(fight.clients[0] as Locks) as RecordStore<Counted>).get(key)
  const sum = value?.sum ?? 0
  if (sum < sight.granted || sum > sight.granted + unknown)
    sight.wrong.push(`${sum} after ${sight.granted} changes, and ${unknown} of unknown outcome`)
  return sight.wrong
}

/** All callers, and the trouble, until it is enough. An outage that is longer than the ttl is told to the caller. */
async function fought(
  { clients, callersOfEach, seed, trouble }: Fight,
  sight: Sight,
  tolerated: readonly string[],
  turn: (locks: Locks) => Promise<void>,
): Promise<void> {
  const caller = async (locks: Locks): Promise<void> => {
    while (sight.goesOn)
      await turn(locks).catch((error: { code?: string }) => {
        if (!tolerated.includes(error.code ?? '')) throw error
      })
  }
  const chance = dice(seed)
  const makeTrouble = async (): Promise<void> => {
    while (sight.goesOn) {
      await trouble(chance)
      await sleep(chance.below(150))
    }
  }
  // A server that did not come back, say: without an end the callers would go on failing for ever.
  const endFight = (error: unknown): void => void sight.wrong.push(`the trouble failed: ${String(error)}`)
  const troubles = [makeTrouble().catch(endFight), makeTrouble().catch(endFight)]
  const callers = clients.flatMap((locks) => Array.from({ length: callersOfEach }, () => caller(locks)))
  await Promise.all([...callers, ...troubles])
}

/** On the way of one client. */
export async function troubleOnTheWay(proxy: FaultProxy, chance: Dice): Promise<void> {
  switch (chance.below(5)) {
    case 0:
      proxy.reset()
      return
    case 1:
      proxy.blackHole('replies')
      await sleep(chance.below(300))
      proxy.reset()
      break
    case 2:
      proxy.blackHole(...(chance.oneIn(2) ? (['requests'] as const) : []))
      await sleep(chance.oneIn(8) ? 5_000 : chance.below(800))
      break
    case 3:
      await proxy.refuse()
      await sleep(chance.below(300))
      break
    default:
      proxy.delay(chance.below(30))
      await sleep(chance.below(200))
  }
  await proxy.heal()
}
