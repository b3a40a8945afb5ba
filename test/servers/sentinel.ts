/** Redis with a replica and three sentinels, who put the replica in the master's place when the master is gone. */
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from './ports.ts'
import type { Program } from './programs.ts'
import { RedisServer } from './redis.ts'
import { Resp } from './resp.ts'
import { ServerProcess } from './servers.ts'

const NAME = 'mymaster'
const SENTINELS = 3
const QUORUM = 2
/** How long a master may be silent, and half of how long it is until the next fail-over: short, so that tests are. */
const DOWN_AFTER_MS = 500
const FAILOVER_MS = 1000
/** Where no fail-over is wanted: longer than a busy machine keeps a master or a sentinel from its turn. */
const STEADY_DOWN_AFTER_MS = 60_000
const PATIENCE_MS = 60_000

export class SentinelDeployment implements AsyncDisposable {
  readonly #servers: RedisServer[] = []
  readonly #sentinels: { readonly port: number; readonly process: ServerProcess }[] = []

  /** `steady`: no fail-over comes because the machine is busy. */
  static async start(
    program: Program,
    { replicas = 1, steady = false }: { readonly replicas?: number; readonly steady?: boolean } = {},
  ): Promise<SentinelDeployment> {
    const deployment = new SentinelDeployment()
    try {
      await deployment.#startAll(program, replicas, steady ? STEADY_DOWN_AFTER_MS : DOWN_AFTER_MS)
    } catch (error) {
      await deployment[Symbol.asyncDispose]()
      throw error
    }
    return deployment
  }

  private constructor() {}

  get url(): string {
    return `redis-sentinel://${this.#sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/${NAME}`
  }

  async masters(): Promise<readonly RedisServer[]> {
    return [await this.master()]
  }

  /**
   * The server that all sentinels call the master. After a fail-over they take a while to agree, and a client may ask
   * any of them.
   */
  async master(): Promise<RedisServer> {
    const named = new Set<string>()
    for (const { port } of this.#sentinels) {
      await using sentinel = await Resp.connect({ port })
      const [, address] = (await sentinel.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME)) as [string, string]
      named.add(address)
    }
    const found = this.#servers.find((server) => named.has(String(server.port)))
    if (found === undefined || named.size > 1) throw new Error(`the sentinels name ${[...named].join(' and ')}`)
    return found
  }

  /** Kill the master, or end it, or stop it in its tracks, and wait until another one is in its place and serves. */
  async failOver(
    how: 'kill' | 'stop' | 'pause' = 'kill',
  ): Promise<{ readonly old: RedisServer; readonly new: RedisServer }> {
    const old = await until('a master that all sentinels name', () => this.master())
    await old.process?.[how]()
    const next = await until('another master', async () => {
      const named = await this.master()
      return named !== old && (await role(named)) === 'master' && named
    })
    return { old, new: next }
  }

  /** End the master, and have it back, as a replica of the one that came in its place. */
  async restart(how: 'cleanly' | 'killed'): Promise<void> {
    const { old, new: master } = await this.failOver(how === 'killed' ? 'kill' : 'stop')
    await old.process?.start()
    await using client = await old.connect()
    await client.command('REPLICAOF', '127.0.0.1', master.port)
    await this.replicated(this.#servers.length - 1)
  }

  /** Until the master has as many replicas that keep up. */
  async replicated(count: number): Promise<void> {
    await until(`${count} replicas`, async () => {
      await using master = await (await this.master()).connect()
      const online = String(await master.command('INFO', 'replication')).match(/state=online/g)
      return online?.length === count
    })
  }

  /** Stop the sentinel that stands first in the URL in its tracks. */
  pauseFirstSentinel(): void {
    this.#sentinels[0]?.process.pause()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const processes = [...this.#sentinels, ...this.#servers].map(({ process }) => process)
    for (const process of processes) process?.resume()
    await Promise.all(processes.map(async (process) => process?.[Symbol.asyncDispose]()))
  }

  async #startAll(program: Program, replicas: number, downAfterMs: number): Promise<void> {
    const master = await RedisServer.start({ program })
    this.#servers.push(master)
    for (let index = 0; index < replicas; index += 1) {
      this.#servers.push(await RedisServer.start({ program }, { args: ['--replicaof', '127.0.0.1', `${master.port}`] }))
    }
    for (let index = 0; index < SENTINELS; index += 1) {
      this.#sentinels.push(await startSentinel(program, master.port, downAfterMs))
    }
    await this.replicated(replicas)
    // A sentinel that does not know the others and the replicas yet cannot decide anything.
    for (const { port } of this.#sentinels) await until('the sentinels know each other', () => knowsAll(port, replicas))
  }
}

async function startSentinel(
  program: Program,
  masterPort: number,
  downAfterMs: number,
): Promise<{ port: number; process: ServerProcess }> {
  const port = await freePort()
  const process = await ServerProcess.start({
    name: 'sentinel',
    program,
    args: (folder) => {
      const settings = [
        ...[
          `port ${port}`,
          'bind 127.0.0.1',
          `dir ${folder}`,
          `sentinel monitor ${NAME} 127.0.0.1 ${masterPort} ${QUORUM}`,
        ],
        ...[
          `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
          `sentinel failover-timeout ${NAME} ${FAILOVER_MS}`,
        ],
      ]
      const file = join(folder, 'sentinel.conf')
      writeFileSync(file, `${settings.join('\n')}\n`)
      // A sentinel keeps what it learns in this file, and runs as another user.
      chmodSync(file, 0o666)
      return [file, '--sentinel']
    },
    ready: async () => {
      await using client = await Resp.connect({ port, silenceMs: 2_000 })
      await client.command('PING')
    },
  })
  return { port, process }
}

async function knowsAll(port: number, replicas: number): Promise<boolean> {
  await using sentinel = await Resp.connect({ port })
  const fields = (await sentinel.command('SENTINEL', 'MASTER', NAME)) as string[]
  const field = (name: string): number => Number(fields[fields.indexOf(name) + 1])
  return field('num-other-sentinels') === SENTINELS - 1 && field('num-slaves') === replicas
}

async function role(server: RedisServer): Promise<unknown> {
  await using client = await server.connect()
  const [name] = (await client.command('ROLE')) as unknown[]
  return name
}

/** Whatever fails meanwhile counts as "not yet". */
async function until<Found extends object | true>(what: string, check: () => Promise<Found | false>): Promise<Found> {
  const giveUpAt = performance.now() + PATIENCE_MS
  for (;;) {
    const found = await check().catch(() => false as const)
    if (found !== false) return found
    if (performance.now() > giveUpAt) throw new Error(`never happened: ${what}`)
    await sleep(20)
  }
}
