/** How an entry enters, renews and leaves on a majority: on simulated servers, with time in hand. */
import { expect, test } from 'vitest'
import { Random } from '../../simulation/random.ts'
import type { RedlockConditions } from '../../simulation/redlock/conditions.ts'
import { Link } from '../../simulation/redlock/link.ts'
import { SimulatedServer } from '../../simulation/redlock/server.ts'
import { VirtualTime } from '../../simulation/redlock/time.ts'
import type { Claim, Standing } from '../../src/core/engine.ts'
import { RetrySignals } from '../../src/engines/redlock/listen.ts'
import { Quorum } from '../../src/engines/redlock/quorum.ts'
import { summarizeRefusals } from '../../src/engines/redlock/quorum-decision.ts'
import type { LeaveRequest, RepairRequest } from '../../src/engines/redlock/quorum-server.ts'

const TTL_MS = 1000
const CALM: RedlockConditions = {
  ...{
    servers: 5,
    clients: 2,
    keys: 1,
    shared: false,
    wild: false,
    late: false,
    breaks: 0,
    holes: 0,
    crashes: 0,
    forgets: false,
    amnesia: false,
  },
  ...{ delayMs: 1, slow: 0, resent: 0, vanishing: 0, seconds: 0 },
}

class World {
  readonly time = new VirtualTime()
  readonly servers: readonly SimulatedServer[]
  readonly #chance: Random

  constructor(seed = 1) {
    this.#chance = new Random(seed, 'w')
    this.servers = Array.from(
      { length: CALM.servers },
      () => new SimulatedServer(() => 1_000_000 + this.time.now, String),
    )
  }

  client(): { readonly quorum: Quorum; readonly links: readonly Link[] } {
    const links = this.servers.map((server) => new Link(this.time, this.#chance, CALM, server))
    const clock = this.time.clock(1)
    const quorum = new Quorum({
      servers: links,
      clock,
      chance: this.#chance.fork('c'),
      timeoutMs: 50,
      onWaiting: () => undefined,
    })
    for (const [index, link] of links.entries()) link.onReturn = () => quorum.serverReturned(index)
    return { quorum, links }
  }

  /** Which entry has the key, server by server. */
  get holders(): readonly (string | undefined)[] {
    return this.servers.map(({ keys }) => keys.get('k')?.id)
  }

  pass(ms: number): void {
    this.time.runUntil(this.time.now + ms)
  }

  enter(quorum: Quorum, id: string, wait = true, ttlMs: number = TTL_MS): Standing[] {
    const heard: Standing[] = []
    quorum.enter([{ ...claim(id, wait), ttlMs }], ([standing]) => heard.push(standing as Standing))
    return heard
  }
}

function claim(id: string, wait: boolean): Claim {
  return { key: 'k', id, holder: '', weight: 1, limit: 1, ttlMs: TTL_MS, wait }
}

test('several that try at the same moment do not hang, and one of them gets it', () => {
  for (let round = 0; round < 50; round += 1) {
    const world = new World()
    const answers = ['a', 'b', 'c'].map((id) => world.enter(world.client().quorum, id, false))
    world.pass(500)
    const states = answers.map(([standing]) => standing?.state)
    expect(states.filter((state) => state === 'held').length).toBeLessThanOrEqual(1)
    expect(states).not.toContain(undefined)
    // The losers have given back what they had; the winner gets that with its next renewal.
    const winner = states.includes('held') ? ['a', 'b', 'c'][states.indexOf('held')] : undefined
    expect(world.holders.filter((holder) => holder === winner).length).toBeGreaterThanOrEqual(3)
    for (const holder of world.holders) expect([winner, undefined]).toContain(holder)
  }
})

test('a key of an earlier attempt, whose answer was lost, is ours, and lives for a whole ttl again before it counts', () => {
  const world = new World()
  const { quorum, links } = world.client()
  const first = world.enter(quorum, 'a')
  // The requests have arrived, the answers have not.
  world.pass(1)
  for (const link of links) link.break()
  world.pass(100)
  expect(first[0]?.state).toBe('failed')
  for (const server of world.servers) server.take({ ...claim('a', true), mode: 'wait', attempt: 1 })
  world.pass(TTL_MS / 2)
  const again = world.enter(quorum, 'a')
  world.pass(20)
  expect(again[0]).toMatchObject({ state: 'held' })
  for (const { keys } of world.servers)
    expect(keys.get('k')?.expiresAt).toBeGreaterThan(1_000_000 + world.time.now + 0.9 * TTL_MS)
})

test('what was taken where no answer came is given back there too', () => {
  const world = new World()
  const [one, other] = [world.client(), world.client()]
  const held = world.enter(other.quorum, 'b')
  world.pass(20)
  expect(held[0]?.state).toBe('held')
  // Two servers have forgotten it: they let the next one in, and hear of it late.
  for (const server of world.servers.slice(0, 2)) server.forget()
  for (const link of one.links.slice(0, 2)) link.silence(world.time.now + 200)
  const failing = world.enter(one.quorum, 'a', false)
  world.pass(150)
  expect(failing[0]?.state).toBe('busy')
  world.pass(200)
  expect(world.holders).toEqual([undefined, undefined, 'b', 'b', 'b'])
})

test('a lease that is renewed is repaired on servers that have lost it, and after its release on none', () => {
  const world = new World()
  const { quorum } = world.client()
  world.enter(quorum, 'a')
  world.pass(20)
  world.servers[0]?.forget()
  const renewed: Standing[] = []
  quorum.renew([{ key: 'k', id: 'a', ttlMs: TTL_MS }], ([standing]) => renewed.push(standing as Standing))
  world.pass(20)
  expect(renewed[0]?.state).toBe('held')
  expect(world.holders).toEqual(['a', 'a', 'a', 'a', 'a'])
  world.servers[1]?.forget()
  quorum.renew([{ key: 'k', id: 'a', ttlMs: TTL_MS }], () => undefined)
  quorum.leave([{ key: 'k', id: 'a' }], () => undefined)
  world.pass(50)
  expect(world.holders).toEqual([undefined, undefined, undefined, undefined, undefined])
  expect(quorum.size).toBe(0)
})

test('nothing is waited for that cannot change the outcome: two silent servers cost no time', () => {
  const world = new World()
  const { quorum, links } = world.client()
  for (const link of links.slice(0, 2)) link.silence(10_000)
  const answers = world.enter(quorum, 'a')
  world.pass(15)
  expect(answers[0]?.state).toBe('held')
})

test('three silent servers: refused after the time-out, and nothing is left when they are back', () => {
  const world = new World()
  const { quorum, links } = world.client()
  for (const link of links.slice(0, 3)) link.silence(300)
  const answers = world.enter(quorum, 'a')
  world.pass(60)
  expect(answers[0]?.state).toBe('failed')
  world.pass(400)
  expect(world.holders.every((holder) => holder === undefined)).toBe(true)
})

test('a try that is left while it pauses between two attempts asks no more', () => {
  for (let seed = 1; seed <= 100; seed += 1) {
    const world = new World(seed)
    const all = ['a', 'b', 'c'].map((id) => ({ id, ...world.client() }))
    for (const { id, quorum } of all) world.enter(quorum, id, false)
    world.pass(2 + (seed % 20) / 2)
    for (const { id, quorum } of all) quorum.leave([{ key: 'k', id }], () => undefined)
    world.pass(300)
    expect(world.holders, `seed ${seed}`).toEqual([undefined, undefined, undefined, undefined, undefined])
    expect(all.map(({ quorum }) => quorum.size)).toEqual([0, 0, 0])
  }
})

test('what could not be given back is given back when the server returns, as long as it would live there', () => {
  const world = new World()
  const { quorum, links } = world.client()
  const ttlMs = 600_000
  world.enter(quorum, 'a', true, ttlMs)
  world.pass(20)
  links[0]?.break(120_000)
  quorum.leave([{ key: 'k', id: 'a' }], () => undefined)
  world.pass(100_000)
  expect(world.holders).toEqual(['a', undefined, undefined, undefined, undefined])
  world.pass(30_000)
  expect(world.holders).toEqual([undefined, undefined, undefined, undefined, undefined])
})

test('nothing is given back to a server that was never asked, and never more than a hundred at once to one that was', () => {
  const world = new World()
  const { quorum, links } = world.client()
  const [asked, away] = links as [Link, Link]
  const sizes = { asked: [] as number[], away: [] as number[] }
  for (const [name, link] of Object.entries({ asked, away })) {
    const leave = link.leave.bind(link)
    link.leave = (requests: readonly LeaveRequest[], onReply) => {
      sizes[name as keyof typeof sizes].push(requests.length)
      leave(requests, onReply)
    }
  }
  away.break(5_000)
  const claims = Array.from({ length: 1_000 }, (_, index) => ({
    ...claim(`i${index}`, false),
    key: `k${index}`,
    ttlMs: 60_000,
  }))
  for (const one of claims) quorum.enter([one], () => undefined)
  world.pass(100)
  asked.break(5_000)
  for (const one of claims) quorum.leave([one], () => undefined)
  world.pass(6_000)
  expect(sizes.away).toEqual([])
  expect(sizes.asked).toEqual(Array.from({ length: 10 }, () => 100))
  for (const { keys } of world.servers) expect(keys.size).toBe(0)
})

test('a server is repaired soon after it has answered, or not at all: what a broken connection has held up may come after the release', () => {
  const world = new World()
  const { quorum, links } = world.client()
  world.enter(quorum, 'a')
  world.pass(20)
  world.servers[0]?.forget()
  const held: RepairRequest[] = []
  const [first] = links as [Link]
  first.repair = (requests) => held.push(...requests)
  quorum.renew([{ key: 'k', id: 'a', ttlMs: TTL_MS }], () => undefined)
  world.pass(20)
  expect(held).toHaveLength(1)
  first.break()
  quorum.leave([{ key: 'k', id: 'a' }], () => undefined)
  world.pass(TTL_MS / 2)
  for (const request of held) world.servers[0]?.repair(request)
  expect(world.holders).toEqual([undefined, undefined, undefined, undefined, undefined])
})

test('a signal that comes while a waiter asks is not forgotten over the answer, which is older', () => {
  const world = new World()
  const told: string[] = []
  const signals = new RetrySignals({
    servers: 5,
    clock: world.time.clock(1),
    chance: new Random(1),
    deaf: () => false,
    isOurs: () => true,
    retry: (_, id) => told.push(id),
  })
  const taken = { why: 'taken', by: 'b', stranger: false, ahead: 1, next: true, recheckMs: 600_000 } as const
  signals.received(0, 'a k', (serverKey) => serverKey)
  signals.schedule(claim('a', true), summarizeRefusals([taken, taken, taken, taken, taken]))
  world.pass(100)
  expect(told).toEqual(['a'])
})
