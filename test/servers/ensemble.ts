/**
 * Three etcd members, and the network between them in our hands: each of them can be cut off from the others, while
 * clients still reach it.
 *
 * The members reach each other through a gate each. Members say who they are in the first request of a connection
 * (`X-Server-From`), so a gate knows whom it lets through. What does not say so (a follower that passes on a keep-alive
 * to its leader) is only known by where it goes.
 */

import { once } from 'node:events'
import { createServer, connect as dial, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type EtcdOptions, EtcdServer } from './etcd.ts'
import { freePort } from './ports.ts'
import type { Program } from './programs.ts'

const MEMBERS = 3
const PATIENCE_MS = 60_000

/** What the gateway of a member says of it. */
interface Status {
  readonly header: { readonly member_id: string }
  readonly leader?: string
}

interface Member {
  readonly server: EtcdServer
  readonly gate: Gate
}

export class EtcdEnsemble implements AsyncDisposable {
  readonly #members: Member[] = []

  static async start(program: Program, options: EtcdOptions = {}): Promise<EtcdEnsemble> {
    const ensemble = new EtcdEnsemble()
    const plans = await Promise.all(
      Array.from({ length: MEMBERS }, async (_, index) => {
        const peerPort = await freePort()
        return { name: `m${index}`, peerPort, gate: await Gate.open(peerPort) }
      }),
    )
    const all = plans.map(({ name, gate }) => `${name}=http://127.0.0.1:${gate.port}`).join(',')
    const started = await Promise.allSettled(
      // None of them is ready before most of them are.
      plans.map(async ({ name, peerPort, gate }) => {
        const server = await EtcdServer.member(program, { name, peerPort, advertisedPort: gate.port, all }, options)
        return { server, gate }
      }),
    )
    for (const [index, one] of started.entries()) {
      if (one.status === 'fulfilled') ensemble.#members.push(one.value)
      else await plans[index]?.gate[Symbol.asyncDispose]()
    }
    const failed = started.find((one) => one.status === 'rejected')
    if (failed !== undefined) {
      await ensemble[Symbol.asyncDispose]()
      throw failed.reason
    }
    return ensemble
  }

  private constructor() {}

  get url(): string {
    return `etcd://${this.servers.map(({ host, port }) => `${host}:${port}`).join(',')}`
  }

  get servers(): readonly EtcdServer[] {
    return this.#members.map(({ server }) => server)
  }

  /** The member that leads, in the word of the one that is asked: whichever answers, unless one is named. */
  async leader(asked?: EtcdServer): Promise<EtcdServer> {
    const giveUpAt = performance.now() + PATIENCE_MS
    for (;;) {
      for (const server of asked === undefined ? this.servers : [asked]) {
        const status = await statusOf(server).catch(() => undefined)
        const leader =
          status?.leader === undefined || status.leader === '0' ? undefined : await this.#memberOf(status.leader)
        if (leader !== undefined) return leader
      }
      if (performance.now() > giveUpAt) throw new Error(`no member leads: ${await this.state()}`)
      await sleep(20)
    }
  }

  /** Until the others have a leader of their own. */
  async leaderWithout(server: EtcdServer): Promise<EtcdServer> {
    const [other] = this.servers.filter((one) => one !== server) as [EtcdServer]
    const giveUpAt = performance.now() + PATIENCE_MS
    for (;;) {
      const leader = await this.leader(other)
      if (leader !== server) return leader
      if (performance.now() > giveUpAt) throw new Error(`the others have no leader of their own: ${await this.state()}`)
      await sleep(20)
    }
  }

  /** What each member says of itself, in one line: who leads, and how far it is. */
  async state(): Promise<string> {
    const said = this.servers.map(async (server) => {
      const told = await statusOf(server).catch((error: Error) => error.message)
      return `${server.port}: ${typeof told === 'string' ? told : JSON.stringify(told)}`
    })
    return (await Promise.all(said)).join('; ')
  }

  /** Nothing passes between this member and the others. Clients still reach it. */
  async cutOff(server: EtcdServer): Promise<void> {
    const id = (await statusOf(server)).header.member_id
    for (const { server: one, gate } of this.#members) {
      if (one === server) gate.refuseAll()
      else gate.refuse(hexadecimal(id))
    }
  }

  heal(): void {
    for (const { gate } of this.#members) gate.heal()
  }

  /** One after the other, each back before the next goes. */
  async rollingRestart(how: 'cleanly' | 'killed'): Promise<void> {
    for (const { process } of this.servers) {
      await (how === 'killed' ? process?.kill() : process?.stop())
      await process?.start()
    }
  }

  /** All of them at once. */
  async restart(how: 'cleanly' | 'killed'): Promise<void> {
    await Promise.all(this.servers.map(async ({ process }) => (how === 'killed' ? process?.kill() : process?.stop())))
    await Promise.all(this.servers.map(async ({ process }) => process?.start()))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { server } of this.#members) server.process?.resume()
    await Promise.all(
      this.#members.flatMap(({ server, gate }) => [server[Symbol.asyncDispose](), gate[Symbol.asyncDispose]()]),
    )
  }

  async #memberOf(id: string): Promise<EtcdServer | undefined> {
    for (const server of this.servers) {
      const status = await statusOf(server).catch(() => undefined)
      if (status?.header.member_id === id) return server
    }
    return undefined
  }
}

const hexadecimal = (id: string): string => BigInt(id).toString(16)

async function statusOf({ host, port }: EtcdServer): Promise<Status> {
  const request = { method: 'POST', body: '{}', signal: AbortSignal.timeout(1_000) }
  const answer = await fetch(`http://${host}:${port}/v3/maintenance/status`, request)
  return (await answer.json()) as Status
}

/** The way to one member. */
class Gate implements AsyncDisposable {
  readonly port: number
  readonly #target: number
  readonly #refused = new Set<string>()
  readonly #ways = new Set<{ from: string | undefined; readonly sockets: readonly Socket[] }>()
  #listener: Server | undefined
  #all = false

  static async open(target: number): Promise<Gate> {
    const gate = new Gate(await freePort(), target)
    gate.#listener = createServer({ noDelay: true }, (from) => gate.#join(from)).listen(gate.port, '127.0.0.1')
    await once(gate.#listener, 'listening')
    return gate
  }

  private constructor(port: number, target: number) {
    this.port = port
    this.#target = target
  }

  /** Nothing of this member passes. */
  refuse(from: string): void {
    this.#refused.add(from)
    this.#cut()
  }

  refuseAll(): void {
    this.#all = true
    this.#cut()
  }

  heal(): void {
    this.#all = false
    this.#refused.clear()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.refuseAll()
    this.#listener?.close()
  }

  #cut(): void {
    for (const { from, sockets } of this.#ways) {
      if (this.#all || (from !== undefined && this.#refused.has(from))) for (const socket of sockets) socket.destroy()
    }
  }

  #join(client: Socket): void {
    const member = dial({ port: this.#target, host: '127.0.0.1', noDelay: true })
    const way: { from: string | undefined; readonly sockets: readonly Socket[] } = {
      from: undefined,
      sockets: [client, member],
    }
    this.#ways.add(way)
    client.once('data', (bytes: Buffer) => {
      way.from = /^x-server-from: ([0-9a-f]+)/im.exec(bytes.toString('latin1'))?.[1]
      this.#cut()
    })
    client.pipe(member).pipe(client)
    for (const socket of way.sockets) {
      socket.on('error', () => undefined)
      socket.on('close', () => {
        for (const each of way.sockets) each.destroy()
        this.#ways.delete(way)
      })
    }
    this.#cut()
  }
}
