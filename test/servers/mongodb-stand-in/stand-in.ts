/**
 * The stand-in for MongoDB as tests start it: a process of its own on a free port, frozen, killed and started again
 * like a real server. What was written before a kill is there after it, as with a server that has a journal.
 *
 * Tests name it a stand-in wherever they show a result. For real servers, see ../mongodb.ts.
 */
import { existsSync, readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../ports.ts'
import { ServerProcess } from '../servers.ts'

export interface StandInOptions {
  /** A set of one member, with change streams, transactions and retryable writes; else a stand-alone server. */
  readonly replicaSet: boolean
}

export class StandIn implements AsyncDisposable {
  readonly port: number
  readonly #process: ServerProcess
  readonly #replicaSet: boolean

  static async start({ replicaSet }: StandInOptions): Promise<StandIn> {
    const port = await freePort()
    const program = builtProgram()
    const process = await ServerProcess.start({
      name: 'mongodb-stand-in',
      program: { path: globalThis.process.execPath, version: 'stand-in', root: '', env: {} },
      args: (folder) => [
        // Nearly all that it makes is garbage after one command: with room for it, little is moved.
        ...['--max-semi-space-size=32', program, '--port', String(port), '--dbpath', folder],
        ...(replicaSet ? ['--replSet', 'rs'] : []),
      ],
      ready: () => answers(port),
      isOurCode: true,
    })
    return new StandIn(port, process, replicaSet)
  }

  private constructor(port: number, process: ServerProcess, replicaSet: boolean) {
    this.port = port
    this.#process = process
    this.#replicaSet = replicaSet
  }

  get url(): string {
    return `mongodb://127.0.0.1:${this.port}/${this.#replicaSet ? '?replicaSet=rs' : ''}`
  }

  /** For a client that comes through a proxy on this port: it must not go to the address that the member names. */
  urlThrough(port: number): string {
    return `mongodb://127.0.0.1:${port}/?directConnection=true`
  }

  get pid(): number {
    return this.#process.pid
  }

  /** Connections stay open, and nothing answers. */
  freeze(): void {
    this.#process.pause()
  }

  resume(): void {
    this.#process.resume()
  }

  async kill(): Promise<void> {
    await this.#process.kill()
  }

  /** Start it again after `kill`, or end it in good order first. It has the same port and the same documents. */
  async restart(): Promise<void> {
    if (this.#process.running) await this.#process.stop()
    await this.#process.start()
  }

  /** How much it has written so far, for `rollBack`. */
  get written(): number {
    return statSync(this.#journal).size
  }

  /** Forget what was written since, as a member does that comes back to a set which has gone on without it. */
  async rollBack(written: number): Promise<void> {
    await this.#process.kill()
    truncateSync(this.#journal, written)
    await this.#process.start()
  }

  get #journal(): string {
    return join(this.#process.folder, 'journal')
  }

  /** Set its clock so many milliseconds apart from that of the machine. */
  moveClock(byMs: number): void {
    writeFileSync(`${this.#journal}.clock`, String(byMs))
  }

  async close(): Promise<void> {
    await this.#process[Symbol.asyncDispose]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

async function answers(port: number): Promise<void> {
  await new Promise<void>((done, failed) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy()
      done()
    })
    socket.once('error', failed)
  })
}

/** What main.ts was compiled to. Run from its source, this file is told when that is missing or old. */
function builtProgram(): string {
  const here = fileURLToPath(import.meta.url)
  const sources = dirname(here)
  if (here.endsWith('.js')) return join(sources, 'main.js')
  const built = resolve(sources, '../../../dist/test/servers/mongodb-stand-in')
  for (const file of readdirSync(sources).filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))) {
    const made = join(built, file.replace(/\.ts$/, '.js'))
    if (!existsSync(made) || statSync(made).mtimeMs < statSync(join(sources, file)).mtimeMs)
      throw new Error(`${made} is missing or older than its source: run \`npm run build\` first`)
  }
  return join(built, 'main.js')
}
