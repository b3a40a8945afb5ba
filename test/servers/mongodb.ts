/**
 * Real servers of MongoDB for tests and benchmarks: one of our own, a set of one or of three (mongodb-set.ts), or the
 * deployment that HOLDFAST_TEST_MONGODB_URL names. A deployment that was not started here is never killed or frozen:
 * its `process` is undefined.
 *
 * Neither Debian nor npm has a `mongod`. So a run without one skips these suites even under CI, as no other server's
 * are, and the stand-in (mongodb-stand-in/) is what every run has.
 */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { chmod, copyFile, mkdir } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, delimiter, dirname, join } from 'node:path'
import { type Document, MongoClient } from 'mongodb'
import { downloadedMongod } from './mongodb-download.ts'
import { freePort } from './ports.ts'
import { lastLine, Missing, type Program, programAt } from './programs.ts'
import { ServerProcess } from './servers.ts'
import { cacheFolder, reachable, serverUser } from './user.ts'

/** Where a server comes from: a program to start, or the URL of a deployment that runs. */
export type MongodbSource = { readonly program: Program } | { readonly url: string }

export interface MongodbOptions {
  /** Become a member of the set of this name; it has to be initiated then. */
  readonly set?: string
  /** Further arguments of mongod. */
  readonly args?: readonly string[]
}

const REMEDY =
  'install MongoDB 5.0 or newer so that `mongod` is in PATH, or name the program with HOLDFAST_TEST_MONGOD, or a deployment with HOLDFAST_TEST_MONGODB_URL, or have one fetched with HOLDFAST_TEST_MONGOD_DOWNLOAD=7.0.14'

export async function findMongodb(env: NodeJS.ProcessEnv = process.env): Promise<MongodbSource | Missing> {
  const url = env.HOLDFAST_TEST_MONGODB_URL
  return url ? { url } : await findOwnMongodb(env)
}

/** For suites that kill, freeze and set up their servers. */
export async function findOwnMongodb(
  env: NodeJS.ProcessEnv = process.env,
): Promise<{ readonly program: Program } | Missing> {
  const named = env.HOLDFAST_TEST_MONGOD
  // A program that is asked for by name must run.
  if (named) return { program: await runnable(named) }
  const reasons: string[] = []
  for (const path of programsOf(env)) {
    try {
      return { program: await runnable(path) }
    } catch (error) {
      reasons.push(`${path}: ${lastLine(error)}`)
    }
  }
  const version = env.HOLDFAST_TEST_MONGOD_DOWNLOAD
  if (version) return { program: await runnable(await downloadedMongod(version)) }
  const tried = reasons.length === 0 ? '' : ` (${reasons.join('; ')})`
  return new Missing(`no mongod${tried}. To get it: ${REMEDY}`, { skipsUnderCi: true })
}

/** What is in PATH, then what mongodb-memory-server has fetched for its user or for this project, newest first. */
export function programsOf(env: NodeJS.ProcessEnv): readonly string[] {
  const inPath = (env.PATH ?? '').split(delimiter).map((folder) => join(folder, 'mongod'))
  const caches = [
    env.MONGOMS_DOWNLOAD_DIR ?? '',
    join(env.HOME ?? homedir(), '.cache', 'mongodb-binaries'),
    join('node_modules', '.cache', 'mongodb-memory-server'),
  ]
  return [...inPath.filter(isFile), ...caches.filter((folder) => folder !== '').flatMap(binariesIn)]
}

/** `mongod-x64-debian-7.0.14`, or in a folder of the version: both names were in use. */
function binariesIn(folder: string): readonly string[] {
  if (!existsSync(folder)) return []
  const numeric = new Intl.Collator('en', { numeric: true })
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /^mongod(?:$|-)/.test(basename(name)) && !/\.(?:tgz|lock|md5|downloading)$/.test(name))
    .toSorted((a, b) => numeric.compare(versionIn(b), versionIn(a)))
    .map((name) => join(folder, name))
    .filter(isFile)
}

const versionIn = (name: string): string => /\d+\.\d+\.\d+/.exec(name)?.[0] ?? ''

function isFile(path: string): boolean {
  return existsSync(path) && statSync(path).isFile()
}

/** Under root, servers run as another user, who may not reach the home folder: that one is given a copy. */
async function runnable(path: string): Promise<Program> {
  if (serverUser === undefined || reachable(dirname(path))) return await programAt(path)
  const folder = join(cacheFolder(), 'mongodb')
  const copy = join(folder, basename(path))
  await mkdir(folder, { recursive: true })
  if (!existsSync(copy) || statSync(copy).size !== statSync(path).size) await copyFile(path, copy)
  await chmod(copy, 0o755)
  return await programAt(copy)
}

export class MongodbServer implements AsyncDisposable {
  readonly host: string
  readonly port: number
  /** Undefined for a deployment that is not ours. */
  readonly process: ServerProcess | undefined
  readonly #url: string | undefined

  /** A stand-alone server, or what the URL leads to. */
  static async start(source: MongodbSource, options: MongodbOptions = {}): Promise<MongodbServer> {
    if ('url' in source) return await MongodbServer.#at(source.url)
    const port = await freePort()
    const process = await ServerProcess.start({
      name: 'mongodb',
      program: source.program,
      args: (folder) => argumentsOf(folder, port, options),
      ready: () => ready(port),
    })
    return new MongodbServer('127.0.0.1', port, process, undefined)
  }

  /** A deployment asked for by name must be there: no answer is a failure, not a skip. */
  static async #at(url: string): Promise<MongodbServer> {
    await command(url, { ping: 1 })
    const [, host = '127.0.0.1', port = '27017'] = /^[^/]*\/\/(?:[^@/]*@)?([^:,/?]+)(?::(\d+))?/.exec(url) ?? []
    return new MongodbServer(host, Number(port), undefined, url)
  }

  private constructor(host: string, port: number, process: ServerProcess | undefined, url: string | undefined) {
    this.host = host
    this.port = port
    this.process = process
    this.#url = url
  }

  get url(): string {
    return this.#url ?? this.urlThrough(this.port)
  }

  /** This very server, whatever set it is in, by its own port or by that of a proxy. */
  urlThrough(port: number): string {
    return `mongodb://${this.host}:${port}/?directConnection=true`
  }

  /** A command to this very server, by a client of its own. Fails after some seconds of silence. */
  async command(request: Document, silenceMs?: number): Promise<Document> {
    return await command(this.#url ?? this.urlThrough(this.port), request, silenceMs)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process?.[Symbol.asyncDispose]()
  }
}

async function command(url: string, request: Document, silenceMs = 5_000): Promise<Document> {
  const client = new MongoClient(url, {
    // A frozen server accepts connections, and says nothing on them.
    ...{ serverSelectionTimeoutMS: 3_000, connectTimeoutMS: 3_000, socketTimeoutMS: silenceMs, retryReads: false },
  })
  try {
    return await client.db('admin').command(request)
  } finally {
    await client.close()
  }
}

/** A server that is asked to end is given 15 s for its clients to notice, and tests have none of them left. */
async function ready(port: number): Promise<void> {
  const url = `mongodb://127.0.0.1:${port}/?directConnection=true`
  await command(url, { hello: 1 })
  await command(url, { setParameter: 1, shutdownTimeoutMillisForSignaledShutdown: 100 }).catch(() => undefined)
}

function argumentsOf(folder: string, port: number, { set, args = [] }: MongodbOptions): readonly string[] {
  return [
    ...['--port', String(port), '--bind_ip', '127.0.0.1', '--dbpath', folder, '--nounixsocket'],
    ...['--wiredTigerCacheSizeGB', '0.25', '--setParameter', 'diagnosticDataCollectionEnabled=false'],
    ...(set === undefined ? [] : ['--replSet', set]),
    ...args,
  ]
}
