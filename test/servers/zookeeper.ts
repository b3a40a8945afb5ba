/**
 * ZooKeeper for tests and benchmarks: one server of our own, or the one HOLDFAST_TEST_ZOOKEEPER_URL names. Three of
 * them are in zookeeper-ensemble.ts.
 *
 * It needs a Java and the jars of Debian's package, which is used where it is installed, and else unpacked into our
 * cache. A server that another user runs is never killed, paused or restarted: its `process` is undefined. Suites that
 * do such things ask for `findOwnZooKeeper`.
 */
import { chownSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { fetchPackages } from './apt.ts'
import { keptFolder } from './kept.ts'
import { chosenFor, otherAt } from './other-servers.ts'
import { freePort } from './ports.ts'
import { findProgram, Missing, type Program, type Recipe } from './programs.ts'
import { ServerProcess } from './servers.ts'
import { serverUser } from './user.ts'

const java: Recipe = {
  name: 'java',
  program: 'java',
  places: ['/usr/lib/jvm/*/bin'],
  packages: ['default-jre-headless'],
  install: '`apt-get install default-jre-headless`, or set HOLDFAST_TEST_ZOOKEEPER_URL',
}
const PACKAGE = 'libzookeeper-java'
const JARS = ['usr', 'share', 'java']
const NEEDED = [
  ...['zookeeper', 'zookeeper-jute', 'slf4j-api', 'metrics-core', 'snappy-java', 'commons-io', 'commons-cli'],
  ...['netty-buffer', 'netty-codec', 'netty-common', 'netty-handler', 'netty-resolver', 'netty-transport'],
  // For TLS.
  ...['netty-transport-native-epoll', 'netty-transport-native-unix-common'],
]

/** A Java, and where the jars are. */
export interface ZooKeeperProgram {
  readonly java: Program
  readonly classPath: string
}

export type ZooKeeperSource = { readonly program: ZooKeeperProgram } | { readonly url: string }

export interface ZooKeeperServerOptions {
  /** Lines of its configuration, beside those that every server has. */
  readonly settings?: readonly string[]
  /** Options of its Java, after those that every server has. */
  readonly java?: readonly string[]
  /** A log of transactions that it has done already, before its first start. */
  readonly log?: Buffer
}

export async function findZooKeeper(): Promise<ZooKeeperSource | Missing> {
  const url = process.env.HOLDFAST_TEST_ZOOKEEPER_URL
  return url ? { url } : await findOwnZooKeeper()
}

/** For suites that kill and pause their server. */
export async function findOwnZooKeeper(): Promise<{ readonly program: ZooKeeperProgram } | Missing> {
  const found = await findProgram(java)
  if (found instanceof Missing) return found
  try {
    const places = await jarFolders()
    const classPath = NEEDED.flatMap((jar) => places.map((place) => join(place, `${jar}.jar`))).join(':')
    return { program: { java: found, classPath } }
  } catch (error) {
    const why = (error as Error).message.trim().split('\n').at(-1) ?? ''
    return new Missing(
      `no ZooKeeper (${why}). To get it: apt-get install ${PACKAGE}, or set HOLDFAST_TEST_ZOOKEEPER_URL`,
    )
  }
}

/** What this machine has already is not fetched. A jar that is in none of them is passed over by Java. */
async function jarFolders(): Promise<readonly string[]> {
  const other = chosenFor('zookeeper')
  if (other !== undefined) return [(await otherAt(other)).path]
  const installed = join('/', ...JARS)
  if (existsSync(join(installed, 'zookeeper.jar'))) return [installed]
  const cached = await keptFolder('zookeeper', (root, scratch) => fetchPackages([PACKAGE], root, scratch))
  return [installed, join(cached, ...JARS)]
}

/** A server among others: its number, and where they talk to each other. */
interface Membership {
  readonly number: number
  /** Lines `server.N=...` of its configuration: where it takes the others to be. */
  readonly servers: readonly string[]
}

export class ZooKeeperServer implements AsyncDisposable {
  readonly host: string
  readonly port: number
  /** Undefined for a server that is not ours. */
  readonly process: ServerProcess | undefined

  static async start(source: ZooKeeperSource, options: ZooKeeperServerOptions = {}): Promise<ZooKeeperServer> {
    if ('program' in source) return await ZooKeeperServer.#own(source.program, undefined, options)
    const { hostname, port } = new URL(source.url)
    const server = new ZooKeeperServer(hostname, Number(port || 2181), undefined)
    await server.ask('srvr')
    return server
  }

  static async member(
    program: ZooKeeperProgram,
    membership: Membership,
    options: ZooKeeperServerOptions = {},
  ): Promise<ZooKeeperServer> {
    return await ZooKeeperServer.#own(program, membership, options)
  }

  static async #own(
    { java: program, classPath }: ZooKeeperProgram,
    membership: Membership | undefined,
    { settings = [], java: options = [], log }: ZooKeeperServerOptions,
  ): Promise<ZooKeeperServer> {
    const port = await freePort()
    const process = await ServerProcess.start({
      name: 'zookeeper',
      program,
      args: (folder) => {
        const file = configured(folder, port, membership, settings)
        if (log !== undefined) writeLog(join(folder, 'data'), log)
        const main = ['-cp', classPath, 'org.apache.zookeeper.server.quorum.QuorumPeerMain', file]
        return [...VIRTUAL_MACHINE, ...options, ...main]
      },
      ready: async () => {
        if (!(await askServer({ host: '127.0.0.1', port }, 'srvr')).includes('Mode:')) throw new Error('does not serve')
      },
    })
    return new ZooKeeperServer('127.0.0.1', port, process)
  }

  private constructor(host: string, port: number, process: ServerProcess | undefined) {
    this.host = host
    this.port = port
    this.process = process
  }

  get url(): string {
    return `zookeeper://${this.host}:${this.port}`
  }

  /** A word of four letters, such as `srvr`. */
  ask(word: string): Promise<string> {
    return askServer(this, word)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process?.[Symbol.asyncDispose]()
  }
}

/** Small and quick to start. Empty containers are looked for every second, not every minute. */
const VIRTUAL_MACHINE = [
  ...['-Xms32m', '-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto'],
  ...['-Dznode.container.checkIntervalMs=1000', '-Dznode.container.maxPerMinute=600000'],
  // Written, but not waited for: a killed process loses nothing by it, and tests are quick on slow disks.
  '-Dzookeeper.forceSync=no',
  '-Dzookeeper.jmx.log4j.disable=true',
]

const TICK_MS = 500

function configured(
  folder: string,
  port: number,
  membership: Membership | undefined,
  settings: readonly string[],
): string {
  const data = join(folder, 'data')
  mkdirSync(data, { recursive: true })
  if (serverUser !== undefined) chownSync(data, serverUser.uid, serverUser.gid)
  const file = join(folder, 'zoo.cfg')
  const lines = [
    ...[`dataDir=${data}`, `clientPort=${port}`, 'clientPortAddress=127.0.0.1', 'admin.enableServer=false'],
    ...[`tickTime=${TICK_MS}`, 'initLimit=20', 'syncLimit=6', `minSessionTimeout=${2 * TICK_MS}`],
    ...['maxSessionTimeout=1200000', '4lw.commands.whitelist=*', 'maxClientCnxns=0', 'snapCount=100000'],
    ...(membership?.servers ?? []),
    ...settings,
  ]
  writeFileSync(file, `${lines.join('\n')}\n`)
  if (membership !== undefined) writeFileSync(join(data, 'myid'), String(membership.number))
  return file
}

function writeLog(data: string, log: Buffer): void {
  const folder = join(data, 'version-2')
  if (existsSync(folder)) return
  mkdirSync(folder)
  writeFileSync(join(folder, 'log.1'), log)
  if (serverUser !== undefined)
    for (const path of [folder, join(folder, 'log.1')]) chownSync(path, serverUser.uid, serverUser.gid)
}

async function askServer({ host, port }: { host: string; port: number }, word: string): Promise<string> {
  return await new Promise((resolve, reject) => {
    let answer = ''
    const socket = connect({ host, port })
    socket.setTimeout(2_000, () => socket.destroy(new Error('no answer')))
    socket.on('data', (piece) => {
      answer += piece.toString()
    })
    socket.on('error', reject)
    socket.on('close', () => resolve(answer))
    socket.write(word)
  })
}
