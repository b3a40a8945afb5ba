/**
 * A Redis Cluster of three masters, each with a third of the slots, and slots that can be moved while clients use them.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Program } from './programs.ts'
import { FaultProxy } from './proxy.ts'
import { RedisServer } from './redis.ts'
import type { Resp } from './resp.ts'

const MASTERS = 3
const SLOTS = 16384
const PATIENCE_MS = 60_000
/** The port at which servers talk to each other, counted from that for clients. */
const BUS_PORT_OFFSET = 10_000

/** Which server has that slot at first, by its index. */
export function thirdOf(slot: number): number {
  return Array.from({ length: MASTERS }, (_, part) => Math.floor((SLOTS * (part + 1)) / MASTERS)).findIndex(
    (end) => slot < end,
  )
}

interface Node {
  readonly server: RedisServer
  client: Resp
  readonly id: string
}

export class ClusterDeployment implements AsyncDisposable {
  readonly #nodes: Node[] = []

  static async start(program: Program, args: readonly string[] = []): Promise<ClusterDeployment> {
    const cluster = new ClusterDeployment()
    try {
      await cluster.#startAll(program, args)
    } catch (error) {
      await cluster[Symbol.asyncDispose]()
      throw error
    }
    return cluster
  }

  private constructor() {}

  get url(): string {
    return `redis-cluster://${this.addresses.map(({ host, port }) => `${host}:${port}`).join(',')}`
  }

  get addresses(): readonly { readonly host: string; readonly port: number }[] {
    return this.#nodes.map(({ server: { host, port } }) => ({ host, port }))
  }

  async masters(): Promise<readonly RedisServer[]> {
    return this.#nodes.map(({ server }) => server)
  }

  /** From now on the servers name a proxy each as their address to clients. Among themselves they go without. */
  async behindProxies(): Promise<readonly FaultProxy[]> {
    const proxies: FaultProxy[] = []
    for (const { server, client } of this.#nodes) {
      const proxy = await FaultProxy.start(server)
      proxies.push(proxy)
      await client.command('CONFIG', 'SET', 'cluster-announce-bus-port', server.port + BUS_PORT_OFFSET)
      await client.command('CONFIG', 'SET', 'cluster-announce-port', proxy.port)
    }
    await this.#eventually('the proxies are not known to all', (info) =>
      proxies.every(({ port }) => info.includes(`:${port}@`)),
    )
    return proxies
  }

  /** Where a slot is now, by the index of its server. */
  async ownerOf(slot: number): Promise<number> {
    for (const [index, { client, id }] of this.#nodes.entries()) {
      const nodes = String(await client.command('CLUSTER', 'NODES'))
      const mine = nodes.split('\n').find((line) => line.startsWith(id)) ?? ''
      const ranges = [...mine.matchAll(/ (\d+)(?:-(\d+))?(?= |$)/g)].slice(-MASTERS * 4)
      if (ranges.some(([, from, to = from]) => Number(from) <= slot && slot <= Number(to))) return index
    }
    throw new Error(`no server has the slot ${slot}`)
  }

  /**
   * Begin to move a slot: from now on, keys that are not there any more are asked for at the other server. `finish`
   * moves the keys and ends it.
   */
  async beginMove(slot: number, to: number): Promise<{ finish(): Promise<void> }> {
    const [source, target] = [this.#node(await this.ownerOf(slot)), this.#node(to)]
    await target.client.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', source.id)
    await source.client.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', target.id)
    const finish = async (): Promise<void> => {
      for (;;) {
        const keys = (await source.client.command('CLUSTER', 'GETKEYSINSLOT', slot, 10)) as string[]
        if (keys.length === 0) break
        await source.client.command('MIGRATE', '127.0.0.1', target.server.port, '', 0, 5000, 'KEYS', ...keys)
      }
      for (const { client } of [target, source, ...this.#nodes])
        await client.command('CLUSTER', 'SETSLOT', slot, 'NODE', target.id)
    }
    return { finish }
  }

  /**
   * Take a server out of the Cluster for good. Another one has its slots then, without what was there. It runs on by
   * itself.
   */
  async takeOut(index: number): Promise<void> {
    const [leaving, heir] = [this.#node(index), this.#node((index + 1) % this.#nodes.length)]
    const slots = Array.from({ length: SLOTS }, (_, slot) => slot).filter((slot) => thirdOf(slot) === index)
    await leaving.client.command('FLUSHALL')
    await heir.client.command('CLUSTER', 'BUMPEPOCH')
    for (const { client } of this.#nodes.filter((node) => node !== leaving)) {
      await Promise.all(slots.map((slot) => client.command('CLUSTER', 'SETSLOT', slot, 'NODE', heir.id)))
      await client.command('CLUSTER', 'FORGET', leaving.id)
    }
    await leaving.client.command('CLUSTER', 'RESET', 'SOFT')
  }

  /** End all servers, and start them again. They know each other from their files. */
  async restart(how: 'cleanly' | 'killed'): Promise<void> {
    for (const node of this.#nodes) {
      await node.client[Symbol.asyncDispose]()
      await (how === 'killed' ? node.server.process?.kill() : node.server.process?.stop())
    }
    for (const node of this.#nodes) {
      await node.server.process?.start()
      node.client = await node.server.connect()
    }
    await this.#together()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { client, server } of this.#nodes) {
      await client[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    }
  }

  #node(index: number): Node {
    const node = this.#nodes[index]
    if (node === undefined) throw new RangeError(`there is no server ${index}`)
    return node
  }

  async #startAll(program: Program, more: readonly string[]): Promise<void> {
    for (let index = 0; index < MASTERS; index += 1) {
      const args = ['--cluster-node-timeout', '2000', ...more]
      const server = await RedisServer.start({ program }, { cluster: true, args })
      const client = await server.connect()
      this.#nodes.push({ server, client, id: String(await client.command('CLUSTER', 'MYID')) })
      const [from, to] = [index, index + 1].map((part) => Math.floor((SLOTS * part) / MASTERS)) as [number, number]
      await client.command('CLUSTER', 'ADDSLOTSRANGE', from, to - 1)
      await client.command('CLUSTER', 'SET-CONFIG-EPOCH', index + 1)
    }
    const [first, ...others] = this.#nodes as [Node, ...Node[]]
    for (const { server } of others) await first.client.command('CLUSTER', 'MEET', '127.0.0.1', server.port)
    await this.#together()
  }

  #together(): Promise<void> {
    return this.#eventually(
      'the cluster does not come together',
      (info) => info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${MASTERS}`),
    )
  }

  /** Until every server says so, in what it tells of the Cluster and of its nodes. */
  async #eventually(failure: string, says: (info: string) => boolean): Promise<void> {
    const giveUpAt = performance.now() + PATIENCE_MS
    for (const { client } of this.#nodes) {
      for (;;) {
        const said = [await client.command('CLUSTER', 'INFO'), await client.command('CLUSTER', 'NODES')]
        const info = said.map(String).join('\n')
        if (says(info)) break
        if (performance.now() > giveUpAt) throw new Error(`${failure}:\n${info}`)
        await sleep(20)
      }
    }
  }
}
