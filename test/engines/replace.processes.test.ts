/**
 * Two to ten uploads of one list, by several processes, while some are killed and some are stopped for longer than the
 * ttl, in their transactions and between them. In the end the list is one file, the newest one that was accepted. A
 * reader looks all the time, and never sees a mixture. A batch that is stored is never stored again.
 *
 * HOLDFAST_ROUNDS makes it longer.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { dice } from '../../conformance/chance.ts'
import { connect } from '../../src/connect.ts'
import type { Locks } from '../../src/locks.ts'
import { publishedUpload, removeRetired } from '../../src/recipes/replace/index.ts'
import { builtModule } from '../built.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer, present } from '../servers/suite.ts'
import type { List, Lists } from './replace.lists.ts'

const PROCESSES = 4
const TTL_MS = 800
const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? 2)
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000)
const LIMIT_MS = 60_000 + 20_000 * ROUNDS
const KEY = 'group'

/** One file. */
interface File {
  readonly id: string
  readonly key: string
  readonly batches: number
  readonly size: number
  readonly order: number | undefined
  readonly newest: 'wins' | 'waits'
}

type Outcome = 'published' | 'already' | 'superseded'

type Said =
  | {
      readonly gate: string
      readonly at: 'begun' | 'inserted' | 'storing' | 'stored' | 'publishing' | 'published'
      readonly upload: string
      readonly generation: number
      readonly batch: number
    }
  | { readonly ended: string; readonly outcome: Outcome }
  | { readonly failed: string }

interface Place {
  readonly locks: string
  readonly list: string
  readonly kind: keyof Lists
}

let folder: string
const fleets: Fleet[] = []

beforeEach(() => {
  builtModule('src/index.ts')
  folder = mkdtempSync(join(tmpdir(), 'holdfast-replace-'))
})

afterEach(async () => {
  await Promise.all(fleets.splice(0).map((fleet) => fleet.end()))
  rmSync(folder, { recursive: true, force: true })
})

/** The processes, and what is done to them. */
class Fleet {
  readonly chance = dice(SEED)
  readonly #args: readonly string[]
  readonly #children: ChildProcess[] = []
  readonly #timers = new Set<NodeJS.Timeout>()
  /** Which process works on which files. */
  readonly #working = new Map<ChildProcess, File[]>()
  readonly #waiting = new Map<string, { resolve(outcome: Outcome): void; reject(error: Error): void }>()
  /** Of the round. */
  generations = new Map<string, number>()
  /** The batches that are committed, by file: they are not to be stored again. */
  #stored = new Map<string, number>()
  faults: string[] = []
  #faultsLeft = 0
  /** Called at every gate. */
  onGate: () => void = () => {}

  constructor({ locks, list, kind }: Place) {
    this.#args = [locks, list, kind, String(TTL_MS)]
    fleets.push(this)
  }

  async start(): Promise<void> {
    await Promise.all(Array.from({ length: PROCESSES }, () => this.#spawn()))
  }

  async #spawn(): Promise<ChildProcess> {
    const child = fork('test/engines/replace.child.mjs', this.#args)
    this.#children.push(child)
    this.#working.set(child, [])
    await once(child, 'message')
    child.on('message', (said: Said) => this.#hear(child, said))
    child.on('exit', (code, signal) => {
      for (const { id } of this.#working.get(child) ?? [])
        this.#waiting.get(id)?.reject(new Error(`a worker ended (${code ?? signal})`))
    })
    return child
  }

  beginRound(faults: number): void {
    this.generations = new Map()
    this.#stored = new Map()
    this.#faultsLeft = faults
  }

  /** Resolves when one process or another has done it, or was told that it is superseded. */
  upload(file: File): Promise<Outcome> {
    const outcome = new Promise<Outcome>((resolve, reject) => this.#waiting.set(file.id, { resolve, reject }))
    this.#give(this.chance.pick(this.#children), file)
    return outcome
  }

  #give(child: ChildProcess, file: File): void {
    this.#working.get(child)?.push(file)
    child.send({ upload: file })
  }

  #hear(child: ChildProcess, said: Said): void {
    if ('failed' in said) for (const { reject } of this.#waiting.values()) reject(new Error(said.failed))
    if ('ended' in said) {
      const files = this.#working.get(child) ?? []
      this.#working.set(
        child,
        files.filter(({ id }) => id !== said.ended),
      )
      this.#waiting.get(said.ended)?.resolve(said.outcome)
    }
    if ('gate' in said) this.#pass(child, said)
  }

  #pass(child: ChildProcess, said: Extract<Said, { readonly gate: string }>): void {
    const { at, upload, generation, batch, gate } = said
    try {
      this.#check(at, upload, generation, batch)
    } catch (error) {
      this.#waiting.get(upload)?.reject(error as Error)
    }
    this.onGate()
    const strike = this.#faultsLeft > 0 && this.chance.oneIn(5)
    if (!strike) {
      child.send({ open: gate })
      return
    }
    this.#faultsLeft -= 1
    const how = this.chance.oneIn(2) ? 'kill' : 'stop'
    this.faults.push(`${how} at '${at}'`)
    if (how === 'kill') void this.#kill(child)
    else this.#stop(child, gate)
  }

  #check(at: string, upload: string, generation: number, batch: number): void {
    const before = this.generations.get(upload) ?? generation
    expect(generation, `generation of ${upload}, which was resumed`).toBe(before)
    this.generations.set(upload, generation)
    const stored = this.#stored.get(upload) ?? 0
    if (at === 'inserted') expect(batch, `batch of ${upload} that is stored`).toBeGreaterThan(stored)
    if (at === 'stored') this.#stored.set(upload, batch)
  }

  /** What it was working on is given to another process, as by a queue. */
  async #kill(child: ChildProcess): Promise<void> {
    const files = this.#working.get(child) ?? []
    this.#working.delete(child)
    this.#children.splice(this.#children.indexOf(child), 1)
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    const next = await this.#spawn()
    for (const file of files) this.#give(next, file)
  }

  /** It finds the word to go on when it wakes. */
  #stop(child: ChildProcess, gate: string): void {
    child.kill('SIGSTOP')
    child.send({ open: gate })
    const wake = (): void => {
      this.#timers.delete(timer)
      child.kill('SIGCONT')
    }
    const timer = setTimeout(wake, TTL_MS * (1.2 + this.chance.below(15) / 10))
    this.#timers.add(timer)
  }

  async end(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer)
    this.#working.clear()
    await Promise.all(
      this.#children.splice(0).map(async (child) => {
        const gone = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined
        child.kill('SIGKILL')
        await gone
      }),
    )
  }
}

/** Looks at the list all the time: it is one file, and all of it. */
class Reader {
  readonly #list: List
  readonly #files: ReadonlyMap<string, File>
  #stopped = false
  #generation = 0
  looks = 0
  readonly lists = new Set<string>()

  constructor(list: List, files: ReadonlyMap<string, File>) {
    this.#list = list
    this.#files = files
  }

  async run(): Promise<void> {
    while (!this.#stopped) {
      await this.look()
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
  }

  /** The file that readers see; undefined before there was one. */
  async look(): Promise<string | undefined> {
    const rows = await this.#list.seen()
    this.looks += 1
    const [first] = rows
    if (first === undefined) {
      expect(this.#generation, 'the generation that was seen before nothing was').toBe(0)
      return undefined
    }
    const [id = ''] = first.email.split('.')
    const { batches = 0, size = 0 } = this.#files.get(id) ?? {}
    const whole = Array.from({ length: batches * size }, (_, index) => {
      const batch = 1 + Math.floor(index / size)
      return { generation: first.generation, batch, email: `${id}.${batch}.${1 + (index % size)}` }
    })
    expect(rows, `what a reader sees, with HOLDFAST_SEED=${SEED}`).toEqual(whole)
    expect(first.generation, 'the generation that is seen').toBeGreaterThanOrEqual(this.#generation)
    this.#generation = first.generation
    this.lists.add(id)
    return id
  }

  stop(): void {
    this.#stopped = true
  }
}

/** Files of one round. Sizes are below 10, so that the names of rows are in order. */
function filesOf(round: number, { below, oneIn }: Fleet['chance']): readonly File[] {
  const newest = oneIn(4) ? 'waits' : 'wins'
  const ordered = oneIn(2)
  return Array.from({ length: 2 + below(9) }, (_, nth) => ({
    id: `file-${round}-${nth}`,
    key: KEY,
    batches: 1 + below(6),
    size: 1 + below(8),
    // Not in the order of arrival.
    order: ordered ? 1_000 * round + ((nth * 7) % 11) : undefined,
    newest,
  }))
}

async function playRound(fleet: Fleet, files: readonly File[]): Promise<ReadonlyMap<string, Outcome>> {
  fleet.beginRound(1 + fleet.chance.below(3))
  const outcomes = new Map<string, Outcome>()
  const left = [...files]
  const asked: Promise<void>[] = []
  const next = (): void => {
    const file = left.shift()
    if (file === undefined) return
    const ended = fleet.upload(file).then((outcome) => void outcomes.set(file.id, outcome))
    // It is told below.
    ended.catch(() => {})
    asked.push(ended)
  }
  // The others come while it is going on, or together with it.
  fleet.onGate = () => {
    if (fleet.chance.oneIn(2)) next()
  }
  next()
  for (let known = 0; known < asked.length || left.length > 0; ) {
    if (known === asked.length) next()
    await asked[known]
    known += 1
  }
  return outcomes
}

async function expectOneFile(place: Place): Promise<void> {
  const { lists } = (await import('./replace.lists.mjs' as string)) as { lists: Lists }
  const list = await lists[place.kind](place.list)
  const fleet = new Fleet(place)
  const files = new Map<string, File>()
  const reader = new Reader(list, files)
  await using records = await connect(place.list as `postgres://${string}`)
  let reading: Promise<void> | undefined
  try {
    await list.setup()
    await fleet.start()
    reading = reader.run()
    // It is told below.
    reading.catch(() => {})
    for (let round = 0; round < ROUNDS; round += 1) {
      const own = filesOf(round, fleet.chance)
      for (const file of own) files.set(file.id, file)
      const outcomes = await playRound(fleet, own)
      const published = await publishedUpload(records, KEY)
      const context = `round ${round}, HOLDFAST_SEED=${SEED}, after ${fleet.faults.join(', ')}`
      expect(await reader.look(), `what is seen in ${context}`).toBe(published?.upload)
      expect(outcomes.get(published?.upload ?? ''), `outcome of ${published?.upload} in ${context}`).not.toBe(
        'superseded',
      )
      // None that was accepted is newer.
      expect(Math.max(...fleet.generations.values()), `generations of ${context}`).toBe(published?.generation)
      const highest = Math.max(...own.map(({ order = 0 }) => order))
      expect(published?.order ?? 0, `order of ${context}`).toBe(highest)
      await removeAll(list, records)
      expect(await list.generations(), `generations that have rows, in ${context}`).toEqual([published?.generation])
    }
    reader.stop()
    await reading
    expect(fleet.faults.length, 'faults').toBeGreaterThan(0)
    expect(reader.looks, 'looks of the reader').toBeGreaterThan(20 * ROUNDS)
  } finally {
    reader.stop()
    await reading?.catch(() => {})
    // Before their server goes: they would complain, in this process as an unhandled error.
    await Promise.all([list.close(), fleet.end()])
  }
}

async function removeAll(list: List, records: Locks): Promise<void> {
  await removeRetired(records, KEY, {
    begin: (work) => list.begin(work),
    remove: (tx, generations) => list.remove(tx, generations),
    limit: 3,
  })
}

describe('uploads by processes that are killed and stopped, on SQLite', () => {
  const url = (): string => `sqlite:${join(folder, 'list.db')}`
  test('leave one file', () => expectOneFile({ locks: url(), list: url(), kind: 'sqlite' }), LIMIT_MS)
})

await describeServer('uploads by processes that are killed and stopped, on PostgreSQL', findPostgres, (source) => {
  test(
    'leave one file',
    async () => {
      await using server = await PostgresServer.start(source)
      const url = await server.database()
      await expectOneFile({ locks: url, list: url, kind: 'pg' })
    },
    LIMIT_MS,
  )

  test(
    'leave one file, under locks of Redis',
    async (context) => {
      await using server = await PostgresServer.start(source)
      await using redis = await RedisServer.start(present(await findRedis(), context))
      await expectOneFile({ locks: redis.url, list: await server.database(), kind: 'postgresjs' })
    },
    LIMIT_MS,
  )
})

await describeServer('uploads by processes that are killed and stopped, on MariaDB', findMariadb, (source) => {
  test(
    'leave one file',
    async () => {
      await using server = await MariadbServer.start(source)
      await expectOneFile({ locks: server.url, list: server.url, kind: 'mysql' })
    },
    LIMIT_MS,
  )
})
