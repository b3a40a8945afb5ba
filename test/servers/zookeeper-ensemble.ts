/**
 * Three servers of ZooKeeper. Any of them can be cut off from the others, while clients still reach it: all that passes
 * between two servers goes through proxies of ours, one for each way.
 *
 * A server has two ports for the others: one at which it leads, and one for elections. In an election, a server that
 * connects to another one also says where it can be reached itself, and the other one may call back there. So the proxy
 * puts the port of the proxy for the way back into that greeting.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import { systemClock } from '../../src/core/clock.ts'
import { freePort } from './ports.ts'
import { FaultProxy } from './proxy.ts'
import { type ZooKeeperProgram, ZooKeeperServer, type ZooKeeperServerOptions } from './zookeeper.ts'

const MEMBERS = 3
/** Less than a test or a hook may take: what is not so by then says how the servers are. */
const PATIENCE_MS = 45_000
/**
 * How often in a row servers that have a leader, and in which writes wait, may let a client wait in vain for a session,
 * which takes seconds, without getting on.
 */
const TRIES = 4
/** What is shown of the answers to `srvr` and `mntr`. */
const SHOWN = /^(?:Mode|Zxid|Outstanding|Connections): .*$/gm
const COUNTED = /^zk_(?:synced_followers|pending_syncs|outstanding_requests)\s.*$/gm
/** Those who follow connect to one who was elected a moment ago, and who does not listen yet. */
const LEADING_SOON_MS = 2_000
/**
 * A server that has heard nothing of its vote repeats it, each time after twice as long: up to a minute, unless told
 * otherwise.
 */
const QUICK_ELECTIONS = ['-Dzookeeper.fastleader.maxNotificationInterval=400']

interface ServerPorts {
  readonly leading: number
  readonly electing: number
}

/** The way from one server to another, to both of its ports. */
interface Gate {
  readonly from: number
  readonly to: number
  readonly leading: FaultProxy
  readonly electing: FaultProxy
}

async function gatesBetween(
  numbers: readonly number[],
  ports: ReadonlyMap<number, ServerPorts>,
): Promise<readonly Gate[]> {
  const gates: Gate[] = []
  for (const from of numbers) {
    for (const to of numbers.filter((one) => one !== from)) {
      const { leading, electing } = ports.get(to) as ServerPorts
      gates.push({
        from,
        to,
        leading: await FaultProxy.start({
          port: leading,
          patienceMs: LEADING_SOON_MS,
        }),
        electing: await FaultProxy.start({
          port: electing,
          greeting: (bytes) => greetingFrom(gates.find((one) => one.from === to && one.to === from) as Gate, bytes),
        }),
      })
    }
  }
  return gates
}

/** Where the address stands in a greeting: behind the version of the protocol and the number of the server. */
const ADDRESS_AT = 16

/** A greeting that names the proxy on the way back as the address of its sender. */
function greetingFrom(wayBack: Gate, bytes: Buffer): Buffer {
  const length = bytes.readInt32BE(ADDRESS_AT)
  const address = Buffer.from(`127.0.0.1:${wayBack.electing.port}`)
  const size = Buffer.alloc(4)
  size.writeInt32BE(address.length)
  return Buffer.concat([bytes.subarray(0, ADDRESS_AT), size, address, bytes.subarray(ADDRESS_AT + 4 + length)])
}

/** Three servers, and all ways between them. */
export class ZooKeeperEnsemble implements AsyncDisposable {
  readonly servers: readonly ZooKeeperServer[]
  readonly #gates: readonly Gate[]
  /** Those through which nothing passes. */
  readonly #cut = new Set<Gate>()

  static async start(
    program: ZooKeeperProgram,
    { java = [], ...options }: ZooKeeperServerOptions = {},
  ): Promise<ZooKeeperEnsemble> {
    const numbers = Array.from({ length: MEMBERS }, (_, index) => index + 1)
    const ports = new Map<number, ServerPorts>()
    for (const number of numbers)
      ports.set(number, {
        leading: await freePort(),
        electing: await freePort(),
      })
    const gates = await gatesBetween(numbers, ports)
    const addressFor = (from: number, to: number): string => {
      const gate = gates.find((one) => one.from === from && one.to === to)
      const { leading, electing } = ports.get(to) as ServerPorts
      return `server.${to}=127.0.0.1:${gate?.leading.port ?? leading}:${gate?.electing.port ?? electing}`
    }
    const started = await Promise.allSettled(
      // None of them serves before most of them do.
      numbers.map((number) => {
        const servers = numbers.map((to) => addressFor(number, to))
        return ZooKeeperServer.member(program, { number, servers }, { ...options, java: [...QUICK_ELECTIONS, ...java] })
      }),
    )
    const servers = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    const failed = started.find((one) => one.status === 'rejected')
    const ensemble = new ZooKeeperEnsemble(servers, gates)
    if (failed === undefined) return ensemble
    await ensemble[Symbol.asyncDispose]()
    throw failed.reason
  }

  private constructor(servers: readonly ZooKeeperServer[], gates: readonly Gate[]) {
    this.servers = servers
    this.#gates = gates
  }

  get url(): string {
    return `zookeeper://${this.servers.map(({ host, port }) => `${host}:${port}`).join(',')}`
  }

  /** The server that leads, of these. */
  async leader(among: readonly ZooKeeperServer[] = this.servers): Promise<ZooKeeperServer> {
    const giveUpAt = performance.now() + PATIENCE_MS
    for (;;) {
      for (const server of among) {
        const said = await server.ask('srvr').catch(() => '')
        if (said.includes('Mode: leader')) return server
      }
      if (performance.now() > giveUpAt) throw new Error(`no server leads: ${await this.state()}`)
      await sleep(20)
    }
  }

  /** Resolves when one of them leads and all others follow: until then, connections of clients may still be cut. */
  async settled(): Promise<void> {
    const giveUpAt = performance.now() + PATIENCE_MS
    for (;;) {
      const said = await Promise.all(this.servers.map((server) => server.ask('srvr').catch(() => '')))
      const [leaders, followers] = ['leader', 'follower'].map((mode) =>
        said.filter((one) => one.includes(`Mode: ${mode}`)),
      )
      if (leaders?.length === 1 && followers?.length === this.servers.length - 1) return
      if (performance.now() > giveUpAt) throw new Error(`the servers do not agree on a leader: ${await this.state()}`)
      await sleep(20)
    }
  }

  /** What each server says of itself, in one line: which part it has, how far it is, and what waits in it. */
  async state(): Promise<string> {
    const said = this.servers.map(async (server) => {
      const ask = (word: string): Promise<string> => server.ask(word).catch((error: Error) => error.message)
      const [answer, numbers] = await Promise.all([ask('srvr'), ask('mntr')])
      const told = [...(answer.match(SHOWN) ?? []), ...(numbers.match(COUNTED) ?? [])].join(', ').replaceAll('\t', ' ')
      return `${server.port}: ${told || answer.trim() || 'no answer'}`
    })
    return (await Promise.all(said)).join('; ')
  }

  /** How far the servers are, if writes wait in one of them. Undefined, too, if not all of them answer. */
  async #waitingAt(): Promise<string | undefined> {
    const said = await Promise.all(this.servers.map((server) => server.ask('srvr').catch(() => '')))
    const waiting = said.some((one) => Number(/^Outstanding: (\d+)$/m.exec(one)?.[1] ?? 0) > 0)
    const zxids = said.map((one) => /^Zxid: (.*)$/m.exec(one)?.[1])
    return waiting && !zxids.includes(undefined) ? zxids.join(', ') : undefined
  }

  /**
   * Resolves when writes are done again. ZooKeeper before 3.9.3 can stop for good (ZOOKEEPER-4685): a follower that
   * comes back to its leader, while a write is not decided, may acknowledge the write before its coming back. The
   * leader takes the one for the other. If that was the last acknowledgement it needed, neither this write nor any
   * later one is ever done, though all servers say that they lead and follow. Only another leader ends that: then the
   * one that leads is restarted. Servers that are merely slow get on meanwhile, and are left alone.
   */
  async serving(): Promise<void> {
    const giveUpAt = performance.now() + PATIENCE_MS
    let [inVain, at]: [number, string | undefined] = [0, undefined]
    for (;;) {
      await this.settled()
      if (await this.#writes()) return
      if (performance.now() > giveUpAt) throw new Error(`no write is done: ${await this.state()}`)
      const before = at
      at = await this.#waitingAt()
      inVain = at === undefined ? 0 : at === before ? inVain + 1 : 1
      if (inVain < TRIES) continue
      await this.restartLeader('killed')
      inVain = 0
    }
  }

  /** Whether a session can be had: it begins with a write. */
  async #writes(): Promise<boolean> {
    const servers = { endpoints: this.servers, chroot: '' }
    const session = new ZooKeeperSession({
      servers,
      clock: systemClock,
      timeoutMs: 5_000,
    })
    try {
      await session.connect()
      return true
    } catch {
      return false
    } finally {
      await session.close()
    }
  }

  /** Nothing passes between this server and the others, and none of them is told. Clients still reach it. */
  cutOff(server: ZooKeeperServer): void {
    const number = this.servers.indexOf(server) + 1
    for (const gate of this.#gates) {
      if (gate.from !== number && gate.to !== number) continue
      this.#cut.add(gate)
      gate.leading.blackHole()
      gate.electing.blackHole()
    }
  }

  /**
   * The ways that were cut are open again, for new connections. Others are left alone: servers whose leader goes while
   * writes are under way can stop for good (see `serving`).
   */
  async heal(): Promise<void> {
    const healing = [...this.#cut]
    this.#cut.clear()
    for (const { leading, electing } of healing) {
      for (const proxy of [leading, electing]) {
        proxy.reset()
        await proxy.heal()
      }
    }
  }

  /** The server that leads, which is the one whose restart matters most. */
  async restartLeader(how: 'cleanly' | 'killed'): Promise<void> {
    await this.#restart(await this.leader(), how)
  }

  /** All of them, one after the other, each back before the next goes. */
  async rollingRestart(how: 'cleanly' | 'killed'): Promise<void> {
    for (const server of this.servers) await this.#restart(server, how)
  }

  async #restart({ process }: ZooKeeperServer, how: 'cleanly' | 'killed'): Promise<void> {
    await (how === 'killed' ? process?.kill() : process?.stop())
    await process?.start()
    await this.settled()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { process } of this.servers) process?.resume()
    await Promise.all([
      ...this.servers.map((server) => server[Symbol.asyncDispose]()),
      ...this.#gates.flatMap(({ leading, electing }) => [leading, electing].map((one) => one[Symbol.asyncDispose]())),
    ])
  }
}
