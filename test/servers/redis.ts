/**
 * Redis for tests and benchmarks: a server of our own, or the one HOLDFAST_TEST_REDIS_URL names.
 *
 * A server that was not started here is never killed, paused or restarted: its `process` is undefined. Suites that do
 * such things ask for `findOwnRedis`.
 */
import { findServer } from './other-servers.ts'
import { freePort } from './ports.ts'
import { Missing, type Program, type Recipe } from './programs.ts'
import { Resp, type RespOptions } from './resp.ts'
import { ServerProcess } from './servers.ts'

const recipe: Recipe = {
  name: 'redis',
  program: 'redis-server',
  places: [],
  packages: ['redis-server', 'redis-tools'],
  install:
    '`apt-get install redis-server` (Debian, Ubuntu) or `brew install redis` (macOS), or set HOLDFAST_TEST_REDIS_URL',
}

/** Where a Redis comes from: a program to start, or the URL of one that runs. */
export type RedisSource = { readonly program: Program } | { readonly url: string }

export interface RedisOptions {
  readonly password?: string
  /** Write every command to disk before answering, so that `kill` loses nothing. */
  readonly durable?: boolean
  /** A node of a Cluster: then it listens on a second port, 10,000 above the first. */
  readonly cluster?: boolean
  /** Further arguments of redis-server. */
  readonly args?: readonly string[]
}

export async function findRedis(): Promise<RedisSource | Missing> {
  const url = process.env.HOLDFAST_TEST_REDIS_URL
  return url ? { url } : await findOwnRedis()
}

/** For suites that kill and pause their server. */
export async function findOwnRedis(): Promise<{ readonly program: Program } | Missing> {
  const program = await findServer(recipe)
  return program instanceof Missing ? program : { program }
}

export class RedisServer implements AsyncDisposable {
  readonly host: string
  readonly port: number
  readonly password: string | undefined
  /** Undefined for a server that is not ours. */
  readonly process: ServerProcess | undefined

  static async start(source: RedisSource, options: RedisOptions = {}): Promise<RedisServer> {
    if ('url' in source) return await RedisServer.#at(new URL(source.url))
    const port = await freePort(options.cluster === true ? 10_000 : 0)
    const { password } = options
    const process = await ServerProcess.start({
      name: 'redis',
      program: source.program,
      args: (folder) => argumentsOf(port, folder, options),
      ready: () => ping({ port, password }),
    })
    return new RedisServer('127.0.0.1', port, password, process)
  }

  /** A server asked for by name must be there: no answer is a failure, not a skip. */
  static async #at(url: URL): Promise<RedisServer> {
    const password = url.password === '' ? undefined : decodeURIComponent(url.password)
    const server = new RedisServer(url.hostname, Number(url.port || 6379), password, undefined)
    await ping({ host: server.host, port: server.port, password })
    return server
  }

  private constructor(host: string, port: number, password: string | undefined, process: ServerProcess | undefined) {
    this.host = host
    this.port = port
    this.password = password
    this.process = process
  }

  get url(): string {
    const secret = this.password === undefined ? '' : `:${encodeURIComponent(this.password)}@`
    return `redis://${secret}${this.host}:${this.port}`
  }

  /** A connection of our own client. */
  async connect(): Promise<Resp> {
    return await Resp.connect(this)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process?.[Symbol.asyncDispose]()
  }
}

function argumentsOf(port: number, folder: string, options: RedisOptions): readonly string[] {
  const { password, durable = false, cluster = false, args = [] } = options
  const listen = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder, '--daemonize', 'no', '--save', '']
  // A replica that comes is served at once: usually a master waits for more of them for seconds.
  const replicas = ['--repl-diskless-sync-delay', '0']
  const log = durable ? ['--appendonly', 'yes', '--appendfsync', 'always'] : ['--appendonly', 'no']
  const member = cluster ? ['--cluster-enabled', 'yes'] : []
  const secret = password === undefined ? [] : ['--requirepass', password]
  return [...listen, ...replicas, ...log, ...member, ...secret, ...args]
}

/** Any answer but PONG, such as LOADING, counts as not ready. */
async function ping(options: RespOptions): Promise<void> {
  await using client = await Resp.connect({ ...options, silenceMs: 2_000 })
  await client.command('PING')
}
