/**
 * Eight processes read a number under a lock, pause, and write it back one higher; some are stopped in the pause, for
 * longer than the lease, until another process has written. Without a guard updates are lost; with one, none is.
 * HOLDFAST_ROUNDS makes it longer.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { builtModule } from '../built.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const PROCESSES = 8
const TTL_MS = 400
const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? 1)
/**
 * A process that was stopped while it was writing to the file of the locks keeps the others waiting; it is woken then,
 * and another one is stopped instead.
 */
const GIVE_UP_MS = 5_000

interface Resource {
  setup?(): Promise<void>
  read(key: string): Promise<number>
  close(): Promise<void>
}

interface Outcome {
  readonly acknowledged: number
  readonly refused: number
  readonly lost: number
}

type Backend = 'sqlite' | 'postgres' | 'mysql' | 'mongodb' | 'redis' | 'files'

let folder: string
const children: ChildProcess[] = []

beforeEach(() => {
  builtModule('src/index.ts')
  folder = mkdtempSync(join(tmpdir(), 'holdfast-guards-'))
})

afterEach(async () => {
  await endChildren()
  rmSync(folder, { recursive: true, force: true })
})

async function endChildren(): Promise<void> {
  await Promise.all(
    children.splice(0).map(async (child) => {
      const gone = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined
      child.kill('SIGKILL')
      await gone
    }),
  )
}

async function expectFenced(backend: Backend, where: string): Promise<void> {
  const { backends } = (await import('./guards.backends.mjs' as string)) as {
    backends: Record<Backend, (where: string) => Promise<Resource>>
  }
  const resource = await backends[backend](where)
  try {
    await resource.setup?.()
    const args = [join(folder, 'locks.db'), `${TTL_MS}`, backend, where]
    children.push(...Array.from({ length: PROCESSES }, () => fork('test/engines/guards.child.mjs', args)))
    await Promise.all(children.map((child) => once(child, 'message')))
    const bare = await play(resource, 'bare', 2 * ROUNDS)
    expect(bare.lost, 'updates lost without a guard').toBeGreaterThan(0)
    const guarded = await play(resource, 'guarded', 4 * ROUNDS)
    expect(guarded.lost, 'updates lost with a guard').toBe(0)
    expect(guarded.refused, 'writes refused').toBeGreaterThan(0)
    expect(guarded.acknowledged).toBeGreaterThan(PROCESSES)
  } finally {
    // Before their server goes: they would complain, in this process as an unhandled error.
    await Promise.all([resource.close(), endChildren()])
  }
}

/** Let all of them work until so many have been stopped and replaced. */
async function play(resource: Resource, key: 'bare' | 'guarded', stops: number): Promise<Outcome> {
  const stage = new Stage(key, stops)
  await Promise.all(children.map((child) => stage.direct(child)))
  return {
    acknowledged: stage.acknowledged,
    refused: stage.refused,
    lost: stage.acknowledged - (await resource.read(key)),
  }
}

class Stage {
  acknowledged = 0
  refused = 0
  readonly #key: string
  #stops: number
  #stopped: ChildProcess | undefined
  #written = 0
  #timer: NodeJS.Timeout | undefined

  constructor(key: string, stops: number) {
    this.#key = key
    this.#stops = stops
  }

  /**
   * Resolves when this one has nothing more to do. Each process works twice at least, so that those who are left can
   * replace the last one.
   */
  direct(child: ChildProcess): Promise<void> {
    return new Promise((resolve, reject) => {
      let times = 0
      const next = (): void => {
        times += 1
        child.send(this.#key)
      }
      const hear = (said: 'read' | 'wrote' | 'refused' | 'lost' | { failed: string }): void => {
        if (typeof said === 'object') {
          reject(new Error(`a worker failed: ${said.failed}`))
          return
        }
        if (said === 'wrote') this.#wrote()
        if (said === 'refused') this.refused += 1
        if (said === 'read') this.#goOn(child)
        else if (this.#stops > 0 || this.#stopped !== undefined || times < 2) next()
        else {
          child.off('message', hear)
          resolve()
        }
      }
      child.on('message', hear)
      child.once('exit', (code, signal) => reject(new Error(`a worker ended (${code ?? signal})`)))
      next()
    })
  }

  /** It has read. Stop it right here, if no other process is; it finds the word to go on when it wakes. */
  #goOn(child: ChildProcess): void {
    if (this.#stops > 0 && this.#stopped === undefined) {
      child.kill('SIGSTOP')
      this.#stopped = child
      this.#written = 0
      this.#timer = setTimeout(() => this.#wake(), GIVE_UP_MS)
    }
    child.send('go')
  }

  #wrote(): void {
    this.acknowledged += 1
    this.#written += 1
    if (this.#stopped === undefined || this.#written < 2) return
    this.#stops -= 1
    this.#wake()
  }

  #wake(): void {
    clearTimeout(this.#timer)
    this.#stopped?.kill('SIGCONT')
    this.#stopped = undefined
  }
}

describe('eight processes, stopped and replaced, lose no update behind a guard', () => {
  test('of SQLite', () => expectFenced('sqlite', join(folder, 'numbers.db')))
  test('of files', () => expectFenced('files', folder))
  test('of MongoDB, on a stand-in', async () => {
    await using server = await StandIn.start({ replicaSet: true })
    await expectFenced('mongodb', server.url)
  })
})

await describeServer(
  'eight processes, stopped and replaced, lose no update behind a guard of PostgreSQL',
  findPostgres,
  (source) => {
    test('and lose some without', async () => {
      await using server = await PostgresServer.start(source)
      const database = await server.database()
      await expectFenced('postgres', database)
    })
  },
)

await describeServer(
  'eight processes, stopped and replaced, lose no update behind a guard of MariaDB',
  findMariadb,
  (source) => {
    test('and lose some without', async () => {
      await using server = await MariadbServer.start(source)
      await expectFenced('mysql', server.url)
    })
  },
)

await describeServer(
  'eight processes, stopped and replaced, lose no update behind a guard of Redis',
  findRedis,
  (source) => {
    test('and lose some without', async () => {
      await using server = await RedisServer.start(source)
      await expectFenced('redis', server.url)
    })
  },
)
