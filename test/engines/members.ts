/**
 * What becomes of locks when members of a cluster of servers fail, and a load that notices two holders: written once,
 * for etcd, ZooKeeper, MongoDB and Redis Cluster.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'
import { expect, vi } from 'vitest'
import { channels, type Locks } from '../../src/index.ts'

/**
 * A machine on which three members take turns may take long to elect a leader. Less than a test may take: a wait that
 * is in vain says itself what it waited for.
 */
const LIMIT = { timeout: 45_000, interval: 10 }
/** What a failure tells besides. */
const FAILURES_SHOWN = 10
const INSPECTED_WITHIN_MS = 3_000

export interface Member {
  readonly process?: { pause(): void; resume(): void } | undefined
}

export interface Members<Server extends Member> {
  /** Of all members. The test closes it. */
  open(ttl: '3s' | '30s'): Promise<Locks>
  leader(): Promise<Server>
  othersThan(server: Server): readonly Server[]
  /** Resolves when they serve again. Servers that have stopped for good, by a defect of their own, are mended. */
  serving?(): Promise<void>
  /** How the servers are, for the error of a wait that was in vain. */
  state?(): Promise<string>
}

/** Until `check` does not fail. One that is in vain says what it was for, and how the servers are. */
export async function until<Server extends Member, Value>(
  members: Members<Server>,
  what: string,
  check: () => Value | Promise<Value>,
): Promise<Value> {
  try {
    return await vi.waitFor(check, LIMIT)
  } catch (error) {
    const state = (await members.state?.()) ?? ''
    throw new Error(`${what}: not within ${LIMIT.timeout / 1000} s. ${(error as Error).message}\n${state}`, {
      cause: error,
    })
  }
}

/** Until so many are in the line of `key`. */
export function inLine(locks: Locks, key: string, count: number): Promise<void> {
  return vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)
}

/** Something befalls the leader: leases go on, waiters are served, new locks are had. */
export async function goOnWithoutLeader<Server extends Member>(
  members: Members<Server>,
  key: string,
  befall: (leader: Server) => Promise<void> | void,
): Promise<void> {
  const [one, other] = [await members.open('30s'), await members.open('30s')]
  const lease = await one.mutex(key).acquire()
  const next = other.mutex(key).acquire()
  await inLine(one, key, 2)
  await befall(await members.leader())
  const fresh = await until(members, 'a new lock', () => other.mutex(`${key}: new`).acquire())
  expect(fresh.held).toBe(true)
  expect(lease.held).toBe(true)
  await until(members, 'a release', async () => expect((await lease.release()) || !lease.held).toBe(true))
  const granted = await until(members, 'a grant to the waiter', () => next)
  expect(granted.token ?? 0n).toBeGreaterThan(lease.token ?? 0n)
  expect(granted.held).toBe(true)
}

/** Until `asked` has its answer, as `until`; but it is asked once. */
async function answerOf<Server extends Member, Value>(
  members: Members<Server>,
  what: string,
  asked: Promise<Value>,
): Promise<Value> {
  let answer: PromiseSettledResult<Value> | undefined
  void Promise.allSettled([asked]).then(([settled]) => {
    answer = settled
  })
  await until(members, what, () => expect(answer, 'its answer').toBeDefined())
  return await asked
}

/** What clients were told of calls that failed, the last ones, while `work` was done: told if it fails. */
async function withFailures(work: (inspected: (locks: Locks) => void) => Promise<void>, key: string): Promise<void> {
  const failures: string[] = []
  const heard = ({ error }: { readonly error: unknown }): void => {
    failures.push(String(error))
    if (failures.length > FAILURES_SHOWN) failures.shift()
  }
  let client: Locks | undefined
  channels.failure.subscribe(heard)
  try {
    await work((locks) => {
      client = locks
    })
  } catch (error) {
    const line = await Promise.race([
      Promise.resolve(client?.inspect(key)).then((seen) => inspect(seen), String),
      sleep(INSPECTED_WITHIN_MS, 'no answer', { ref: false }),
    ])
    const { message } = error as Error
    throw new Error(`${message}\nthe line: ${line}\nfailed last:\n${failures.join('\n')}`, { cause: error })
  } finally {
    channels.failure.unsubscribe(heard)
  }
}

/** The majority is frozen: no lock is granted, holders are told in time, and all goes on when it is back. */
export async function stopWithoutMajority<Server extends Member>(members: Members<Server>): Promise<void> {
  await withFailures(async (inspected) => {
    const locks = await answerOf(members, 'a client', members.open('3s'))
    inspected(locks)
    const lease = await answerOf(members, 'a lock, before anything happens', locks.mutex('majority').acquire())
    const told = vi.fn()
    lease.signal.addEventListener('abort', told)
    const others = members.othersThan(await answerOf(members, 'a leader', members.leader()))
    for (const { process } of others) process?.pause()
    const refused = expect(locks.mutex('majority: new').tryAcquire()).rejects.toMatchObject({ code: 'ENGINE' })
    await answerOf(members, 'the refusal of a lock that no majority grants', refused)
    await until(members, 'the loss of a lease that cannot be renewed', () => expect(told).toHaveBeenCalled())
    expect(lease.held).toBe(false)
    for (const { process } of others) process?.resume()
    await Promise.all([
      members.serving?.(),
      until(members, 'the same lock, from servers that are back', async () =>
        expect((await locks.mutex('majority').acquire()).held).toBe(true),
      ),
    ])
  }, 'majority')
}

/** Restarts under load: there are never two holders, tokens rise, and a lease that is held goes on. */
export async function goOnThroughRestarts<Server extends Member>(
  members: Members<Server>,
  restart: () => Promise<void>,
): Promise<void> {
  const [one, other] = [await members.open('30s'), await members.open('30s')]
  const held = await one.mutex('restarts: held').acquire()
  const load = new ExclusiveLoad([one, other], 'restarts')
  await restart()
  await load.advance(10)
  await load.end()
  expect(held.signal.aborted).toBe(false)
  expect(await held.release()).toBe(true)
}

/** Callers of several clients on one key, one after the other, while something happens to the servers. */
export class ExclusiveLoad {
  readonly #tokens: bigint[] = []
  readonly #work: Promise<unknown>
  #inside = 0
  #done = 0
  #goesOn = true

  /** `tolerant`: a call on which a server died may fail; the next one is answered by another. */
  constructor(clients: readonly Locks[], key: string, { tolerant = false }: { readonly tolerant?: boolean } = {}) {
    const callers = clients.flatMap((locks) =>
      Array.from({ length: 4 }, async () => {
        while (this.#goesOn) await this.#turn(locks, key, tolerant)
      }),
    )
    this.#work = Promise.all(callers)
    // Told by `advance` and `end`, unless something else has failed before.
    this.#work.catch(() => undefined)
  }

  async #turn(locks: Locks, key: string, tolerant: boolean): Promise<void> {
    const lease = await locks
      .mutex(key)
      .acquire()
      .catch((error: { code?: string }) => {
        if (!tolerant || error.code !== 'ENGINE') throw error
      })
    if (lease === undefined) return
    this.#inside += 1
    expect(this.#inside, 'how many are inside').toBe(1)
    this.#tokens.push(lease.token ?? 0n)
    await new Promise(setImmediate)
    this.#inside -= 1
    await lease.release()
    this.#done += 1
  }

  /** Until more than `count` further turns are done. */
  async advance(count: number): Promise<void> {
    const before = this.#done
    await Promise.race([this.#work, vi.waitFor(() => expect(this.#done).toBeGreaterThan(before + count), LIMIT)])
  }

  /** Callers end after their turn. Fails if two were inside at once, or if a token did not rise. */
  async end(): Promise<void> {
    this.#goesOn = false
    await this.#work
    const tokens = this.#tokens
    expect(tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint))).toBe(true)
  }
}
