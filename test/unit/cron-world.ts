/** Several hosts with jobs, on one memory server, on a clock that the test moves. The server says that it is noon. */
import { vi } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { cron, type Jobs, type PastRun, type Run } from '../../src/recipes/cron/index.ts'
import { type CountingClock, countingClock } from './world.ts'

export const NOON: number = Date.parse('2026-11-16T12:00:00Z')
export const TTL = 30_000

export interface CronHost {
  readonly locks: Locks
  readonly jobs: Jobs
  readonly errors: unknown[]
  /** `get`, `put`, `enter`, `leave`, ... in the order of the calls. Renewals are left out. */
  readonly calls: string[]
  /** From now on nothing of it reaches the server, and it hears nothing: it was killed. */
  die(): void
  /** The server cannot be reached until `to` is false again. */
  cutOff(to: boolean): void
  /** What this host stores is stored, and it is told nothing of it, until `to` is false again. */
  losePuts(to: boolean): void
}

export class CronWorld {
  readonly clock: CountingClock = countingClock()
  readonly server: MemoryServer
  readonly hosts: CronHost[] = []

  constructor() {
    vi.useFakeTimers({ toFake: ['Date'], now: NOON })
    this.server = new MemoryServer({ clock: this.clock })
    vi.useRealTimers()
  }

  host(name: string = `host-${this.hosts.length + 1}`): CronHost {
    const calls: string[] = []
    let dead = false
    let cut = false
    let deaf = false
    const engine = memory({ server: this.server })
    const call = <Answer>(verb: string, ask: () => Promise<Answer>): Promise<Answer> => {
      if (dead) return new Promise(() => {})
      if (verb !== 'renew') calls.push(verb)
      return cut ? Promise.reject(new Error('cut off')) : ask()
    }
    const { store } = engine
    const counted: Engine = delegate(engine, {
      enter: (claims) => call('enter', () => engine.enter(claims)),
      renew: (places) => call('renew', () => engine.renew(places)),
      leave: (places) => call('leave', () => engine.leave(places)),
      evict: (key, token, how) => call('evict', () => engine.evict(key, token, how)),
      store: {
        traits: store.traits,
        get: (keys) => call('get', () => store.get(keys)),
        put: async (changes) => {
          const puts = await call('put', () => store.put(changes))
          if (deaf) throw new Error('no answer')
          return puts
        },
        list: (prefix) => store.list(prefix),
      },
    })
    const errors: unknown[] = []
    const locks = createLocks(counted, { clock: this.clock, ttl: TTL, holder: name })
    const jobs = cron(locks, { onError: (error) => errors.push(error) })
    const host = {
      locks,
      jobs,
      errors,
      calls,
      die: () => {
        dead = true
      },
      cutOff: (to: boolean) => {
        cut = to
      },
      losePuts: (to: boolean) => {
        deaf = to
      },
    }
    this.hosts.push(host)
    return host
  }

  /** What the server's clock says. */
  time(): string {
    return new Date(NOON + this.clock.now()).toISOString().slice(11, 19)
  }

  async close(): Promise<void> {
    const closed = Promise.all(this.hosts.map(({ locks }) => locks.close()))
    // A host that was killed does not answer.
    await this.clock.advance('10s')
    await closed
  }
}

/** `12:00:05`. */
export function clockTime(date: Date): string {
  return date.toISOString().slice(11, 19)
}

export async function historyOf({ jobs }: CronHost, name: string): Promise<PastRun[]> {
  const runs: PastRun[] = []
  for await (const run of jobs.history(name)) runs.push(run)
  return runs
}

/** A run, with what is not usual about it: `12:05:15 12:05:00 missed 3`. `before` is when, or where, it was run. */
export function described(before: string, { tick, attempt, missed }: Run): string {
  const more = `${attempt > 1 ? ` attempt ${attempt}` : ''}${missed > 0 ? ` missed ${missed}` : ''}`
  return `${before} ${clockTime(tick)}${more}`
}
