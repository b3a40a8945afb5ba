/** Redlock on servers of our own: for the conformance cases, and for tests that kill, stop and cut off some of them. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { ActorModule, World } from '../../conformance/index.ts'
import { openRedlock, type RedlockEngine } from '../../src/engines/redlock/index.ts'
import { builtModule } from '../built.ts'
import type { Program } from '../servers/programs.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { type RedisOptions, RedisServer } from '../servers/redis.ts'

const module = builtModule('src/engines/redlock/index.ts')

/** Several Redis servers that know nothing of each other. */
export class Fleet implements AsyncDisposable {
  readonly servers: readonly RedisServer[]

  /**
   * They keep what they know when they are killed, unless told otherwise. (Not when the machine is: that would take
   * `durable`, and time.)
   */
  static async start(
    source: { readonly program: Program },
    count = 5,
    options: RedisOptions = { args: ['--appendonly', 'yes'] },
  ): Promise<Fleet> {
    return new Fleet(await Promise.all(Array.from({ length: count }, () => RedisServer.start(source, options))))
  }

  private constructor(servers: readonly RedisServer[]) {
    this.servers = servers
  }

  get url(): string {
    return urlOf(this.servers.map(({ port }) => port))
  }

  /** Every key of every server, but the counters. */
  async stored(): Promise<readonly string[]> {
    const found = await Promise.all(
      this.servers.map(async (server, index) => {
        await using client = await server.connect()
        return ((await client.command('KEYS', '*')) as string[]).map((key) => `${index} ${key}`)
      }),
    )
    return found.flat().filter((key) => !key.endsWith(' hf1:counters'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()))
  }
}

export function urlOf(ports: readonly number[]): string {
  return `redlock://${ports.map((port) => `127.0.0.1:${port}`).join(',')}`
}

/** A client connects when it first asks, and then waits for all servers. Cases count time, and sockets: so it has. */
export async function connected(engine: RedlockEngine): Promise<RedlockEngine> {
  await engine.inspect('warm up')
  return engine
}

/** Resolves when all servers answer it again. With a majority alone, the next restart could take that away. */
async function reconnected(engine: RedlockEngine): Promise<void> {
  const answersAll = async (): Promise<boolean> => {
    const findings = await engine.diagnose()
    return findings.find(({ name }) => name === 'servers')?.status === 'ok'
  }
  while (!(await answersAll())) await sleep(10)
}

/** On a busy machine the usual 50 ms are too short for a server to be called dead. */
const PATIENT = '?timeout=200'

export async function redlockWorld(starting: Promise<Fleet>): Promise<World> {
  const fleet = await starting
  const proxies: FaultProxy[] = []
  const engines = new Set<RedlockEngine>()

  const open = async (): Promise<RedlockEngine> => {
    const engine = await connected(await openRedlock(fleet.url + PATIENT))
    engines.add(engine)
    const close = engine[Symbol.asyncDispose].bind(engine)
    engine[Symbol.asyncDispose] = async () => {
      engines.delete(engine)
      await close()
    }
    return engine
  }

  const actor = async (): Promise<ActorModule> => {
    const own = await Promise.all(fleet.servers.map((server) => FaultProxy.start(server)))
    proxies.push(...own)
    return {
      module,
      export: 'openRedlock',
      options: urlOf(own.map(({ port }) => port)) + PATIENT,
      cut: () => {
        for (const proxy of own) proxy.blackHole()
      },
      refuse: async () => {
        for (const proxy of own) await proxy.refuse()
      },
      heal: async () => {
        for (const proxy of own) await proxy.heal()
      },
    }
  }

  return {
    engine: open,
    lacks: { shownEviction: 'its servers remember who was evicted, and are not asked for it by a look' },
    actor,
    leftovers: () => fleet.stored(),
    restart: async (how) => {
      // One after the other, as one does: the next when all are connected again.
      for (const { process } of fleet.servers) {
        await (how === 'killed' ? process?.kill() : process?.stop())
        await process?.start()
        for (const engine of engines) await reconnected(engine)
      }
    },
    restartKeepsLines: true,
    close: async () => {
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
      await fleet[Symbol.asyncDispose]()
    },
  }
}
