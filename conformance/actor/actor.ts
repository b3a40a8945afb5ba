/**
 * The actor: a real process with a client of its own, which a test sends commands to and then kills, stops, cuts off or
 * lets stall.
 *
 * It is started by `Actor.start` (client.ts), never by hand, and it ends when the channel to its test closes. What goes
 * unhandled here is told to the test: a lock library must never cause it.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'
import { monotonicNs } from '../../src/clients/sqlite/monotonic.ts'
import type { Engine } from '../../src/core/engine.ts'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { type FaultyEngine, faulty } from '../faulty.ts'
import { lockBySpec } from '../locks-by-spec.ts'
import type { Arguments, Commands, FromActor, Look, Question, Turn } from './protocol.ts'

type Doing = {
  [Name in keyof Commands]: (args: Arguments<Name>) => ReturnType<Commands[Name]> | Promise<ReturnType<Commands[Name]>>
}

interface Attended {
  readonly turns: Turn[]
  told: boolean
}

let engine: FaultyEngine | undefined
let locks: Locks | undefined
const leases = new Map<string, Lease>()
const cancels = new Map<string, AbortController>()
const ends = new Map<string, () => void>()
const attended = new Map<string, Attended>()

const tell = (message: FromActor): void => {
  if (process.connected) process.send?.(message)
}

function opened(): Locks {
  if (locks === undefined) throw new Error('this actor has not been given an engine')
  return locks
}

function leaseOf(name: string): Lease {
  const lease = leases.get(name)
  if (lease === undefined) throw new Error(`this actor has no lease '${name}'`)
  return lease
}

function look(lease: Lease): Look {
  const atNs = monotonicNs()
  return { atNs, held: lease.held, aborted: lease.signal.aborted, token: lease.token }
}

/** Remember the lease, and say how it looks. Its signal is made now, as a user who passes it on would. */
function took(name: string, lease: Lease): Look {
  leases.set(name, lease)
  return look(lease)
}

function attend(name: string, looking: boolean): void {
  const lease = leaseOf(name)
  const record: Attended = { turns: [], told: false }
  attended.set(name, record)
  lease.signal.addEventListener('abort', () => {
    record.told = true
  })
  setInterval(() => {
    const atNs = monotonicNs()
    const looked = looking ? { held: lease.held, aborted: lease.signal.aborted } : undefined
    record.turns.push({ atNs, looked, told: record.told })
  }, 2).unref()
}

/**
 * The numbers of a file, one for each actor. They are replaced as a whole, so that a kill never leaves half of them.
 */
function addOne(numbers: Record<string, number>, file: string, name: string): void {
  const next = `${file}.${name}`
  writeFileSync(next, JSON.stringify({ ...numbers, [name]: (numbers[name] ?? 0) + 1 }))
  renameSync(next, file)
}

async function count({ lock, file, name, times }: Arguments<'count'>): Promise<number> {
  let lost = 0
  for (let done = 0; done < times; ) {
    try {
      await lockBySpec(opened(), lock).using(async (lease) => {
        const numbers = JSON.parse(readFileSync(file, 'utf8')) as Record<string, number>
        await turn()
        // A file cannot check a token, so the last look comes right before the write.
        lease.assertHeld()
        addOne(numbers, file, name)
        done += 1
      })
    } catch (error) {
      if (!(error instanceof LeaseLostError)) throw error
      lost += 1
    }
  }
  return lost
}

/** Lead until told to end; the answer comes when it leads. */
function lead({ lease: name, key, ttlMs }: Arguments<'lead'>): Promise<Look> {
  return new Promise((resolve, reject) => {
    const leading = opened()
      .election(key, { ttl: ttlMs })
      .lead(async (lease) => {
        resolve(took(name, lease))
        await new Promise<void>((end) => ends.set(name, end))
      })
    leading.catch(reject)
  })
}

function acquire({ lease, lock, waitMs }: Arguments<'acquire'>): Promise<Look> {
  const cancel = new AbortController()
  cancels.set(lease, cancel)
  const options = { signal: cancel.signal, ...(waitMs === undefined ? {} : { wait: waitMs }) }
  return lockBySpec(opened(), lock)
    .acquire(options)
    .then((taken) => took(lease, taken))
}

const doing: Doing = {
  async open({ engine: from, ttlMs, holder }) {
    for (const names of [leases, cancels, ends, attended]) names.clear()
    const module = (await import(from.module)) as Record<string, (options: unknown) => Engine | Promise<Engine>>
    const make = module[from.export]
    if (typeof make !== 'function') throw new TypeError(`${from.module} exports no function '${from.export}'`)
    engine = faulty(await make(from.options))
    locks = createLocks(engine, { ttl: ttlMs, holder })
  },
  acquire,
  async tryAcquire({ lease, lock }) {
    const taken = await lockBySpec(opened(), lock).tryAcquire()
    return taken && took(lease, taken)
  },
  cancel: ({ lease }) => cancels.get(lease)?.abort(new Error('cancelled by the test')),
  async release({ lease, afterMs = 0 }) {
    ends.get(lease)?.()
    return leaseOf(lease).release({ after: afterMs })
  },
  look: ({ lease }) => look(leaseOf(lease)),
  attend: ({ lease, looking }) => attend(lease, looking),
  turns: ({ lease }) => attended.get(lease)?.turns ?? [],
  stall({ lease, ms }) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
    return look(leaseOf(lease))
  },
  count,
  lead,
  jump({ ms }) {
    const now = Date.now
    Date.now = () => now() + ms
  },
  cut: () => engine?.cut(),
  heal: () => engine?.heal(),
  close: async () => locks?.close(),
}

async function answer({ number, name, args }: Question): Promise<void> {
  try {
    const value = await (doing[name] as (args: unknown) => unknown)(args)
    tell({ type: 'answer', number, value })
  } catch (error) {
    const { name: kind, message } = error instanceof Error ? error : { name: 'Error', message: String(error) }
    tell({ type: 'refusal', number, name: kind, message })
  }
}

const unhandled = (error: unknown): void =>
  tell({ type: 'unhandled', message: error instanceof Error ? (error.stack ?? error.message) : String(error) })
process.on('unhandledRejection', unhandled)
process.on('uncaughtException', unhandled)
process.on('disconnect', () => process.exit())
process.on('message', (question) => void answer(question as Question))
