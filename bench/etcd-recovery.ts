/**
 * How long it is until locks on etcd go on: an elected leader killed, and members of a cluster of three killed, frozen
 * or cut off.
 */
import { openEtcd } from '../src/engines/etcd/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { EtcdEnsemble } from '../test/servers/ensemble.ts'
import { type EtcdServer, findOwnEtcd } from '../test/servers/etcd.ts'
import { Missing } from '../test/servers/programs.ts'
import { figure, median } from './driver.ts'
import { Child, untilWaiting } from './processes.ts'

const ROUNDS = 5
const TTL_MS = 2_000
/** Of the lease that is held while a member is in trouble. */
const HELD_TTL_MS = 10_000

interface Trouble {
  readonly name: string
  strike(ensemble: EtcdEnsemble, member: EtcdServer): Promise<unknown> | undefined
}

const TROUBLES: readonly Trouble[] = [
  { name: 'killed', strike: (_, { process }) => process?.kill() },
  {
    name: 'frozen',
    strike: (_, { process }) => {
      process?.pause()
      return undefined
    },
  },
  { name: 'cut off from the others', strike: (ensemble, member) => ensemble.cutOff(member) },
]

export async function run(): Promise<void> {
  const source = await findOwnEtcd()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  await using ensemble = await EtcdEnsemble.start(source.program)
  await electedLeader(ensemble)
  for (const trouble of TROUBLES) {
    for (const who of ['leader', 'follower'] as const) {
      for (const talking of who === 'leader' ? [true, false] : [true]) await member(ensemble, trouble, who, talking)
    }
  }
}

/** From kill -9 of an elected leader to the term of the next one, and until an observer has seen it. */
async function electedLeader(ensemble: EtcdEnsemble): Promise<void> {
  const [next, observing] = [await open(ensemble.url, TTL_MS), await open(ensemble.url, TTL_MS)]
  const [led, seen]: [number[], number[]] = [[], []]
  for (let round = 0; round < ROUNDS; round += 1) {
    const key = `boss:${round}`
    using child = await Child.start(ensemble.url)
    await child.ask({ do: 'lead', key, ttlMs: TTL_MS })
    const before = (await observing.election(key).leader())?.token
    let startedAt = Number.NaN
    const leading = next.election(key).lead(async () => void led.push(performance.now() - startedAt))
    const watching = (async () => {
      for await (const leader of observing.election(key).observe()) {
        if (leader?.token === before) continue
        seen.push(performance.now() - startedAt)
        return
      }
    })()
    await untilWaiting(next, key, 1)
    child.kill()
    startedAt = performance.now()
    await Promise.all([leading, watching])
  }
  console.log(`\nfrom kill -9 of an elected leader, ttl ${TTL_MS} ms`)
  figure('the next one leads: median, longest', text(led))
  figure('an observer sees the change: median, longest', text(seen))
  await Promise.all([next.close(), observing.close()])
}

/** From the trouble of a member to the next lock that is acquired, asked for at that moment. */
async function member(
  ensemble: EtcdEnsemble,
  { name, strike }: Trouble,
  who: 'leader' | 'follower',
  talking: boolean,
): Promise<void> {
  const times: number[] = []
  let lost = 0
  for (let round = 0; round < ROUNDS; round += 1) {
    const leader = await ensemble.leader()
    const others = ensemble.servers.filter((one) => one !== leader)
    const victim = who === 'leader' ? leader : (others[0] as EtcdServer)
    // The first one named is the first one tried.
    const first = talking ? victim : (others[0] as EtcdServer)
    const named = [first, ...ensemble.servers.filter((one) => one !== first)]
    const locks = await open(`etcd://${named.map(({ host, port }) => `${host}:${port}`).join(',')}`, HELD_TTL_MS)
    const held = await locks.mutex('held meanwhile').acquire()
    await locks.mutex('next').using(async () => undefined)
    await strike(ensemble, victim)
    const startedAt = performance.now()
    await locks.mutex('next').using(async () => times.push(performance.now() - startedAt))
    if (!held.held) lost += 1
    await held.release()
    await restore(ensemble)
    await locks.close()
  }
  console.log(`\na ${who} is ${name}, ${talking ? 'and we talk to it' : 'and we talk to another member'}`)
  figure('the next lock is had: median, longest', text(times))
  figure(`leases of ${HELD_TTL_MS / 1000} s lost`, `${lost} of ${ROUNDS}`)
}

async function restore(ensemble: EtcdEnsemble): Promise<void> {
  ensemble.heal()
  for (const { process } of ensemble.servers) {
    if (process?.running === true) process.resume()
    else await process?.start()
  }
  // All of them agree again.
  for (const server of ensemble.servers) await ensemble.leader(server)
}

const text = (times: number[]): string => `${median(times).toFixed(0)} ms, ${Math.max(...times).toFixed(0)} ms`

async function open(url: string, ttl: number): Promise<Locks> {
  return createLocks(await openEtcd(url), { ttl })
}
