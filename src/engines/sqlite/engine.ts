/**
 * The engine: the verbs of the contract, each a piece of work for the next transaction (writer.ts, lines.ts), and what
 * follows from a commit: our own waiters are told directly, those of other engine objects are woken (wake.ts), and the
 * patrol is set (patrol.ts).
 */

import { type BroughtDatabase, loadDriver } from '../../clients/sqlite/driver.ts'
import { refusal } from '../../clients/sqlite/errors.ts'
import { preparePlace } from '../../clients/sqlite/folder.ts'
import { bootId } from '../../clients/sqlite/host.ts'
import type { Chance, Clock } from '../../core/clock.ts'
import type { Claim, Engine, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { Bulk } from './bulk.ts'
import { Clients } from './clients.ts'
import { LINE_BOUND, Lines } from './lines.ts'
import { inspect, page } from './looking.ts'
import { Patrol } from './patrol.ts'
import { deathless, ownName } from './process.ts'
import { HELD, REMOVED } from './schema.ts'
import { Store } from './store.ts'
import { Waiters } from './waiters.ts'
import { Wake } from './wake.ts'
import { Writer } from './writer.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  // Two busy processes take turns within some milliseconds; a shorter ttl would be over before its renewal gets
  // through.
  minTtlMs: 50,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 1_000,
  takesSignal: true,
  tokensSurvive:
    'release, expiry, kill and restart, whatever the clock does; after the loss of the file, or a power cut with durability normal, ' +
    'they go on from the wall clock, which must not have been set back meanwhile',
  survives:
    'the death of any process, a full disk and a restart of the machine; it serves the processes of one host, on a local disk',
}

/** How many lines of a listing are read at once. */
const PAGE = 500

export interface EngineOptions {
  readonly file: string
  readonly database: BroughtDatabase | undefined
  readonly durability: 'normal' | 'full'
  readonly outlives: boolean
  readonly allowNetworkFs: boolean
  readonly clock: Clock
  readonly chance: Chance
}

export class SqliteEngine implements Engine {
  readonly name = 'sqlite'
  readonly traits: Traits = traits
  /** Where the lines are kept. */
  readonly file: string
  readonly #options: EngineOptions
  readonly #clients: Clients
  readonly #bulk = new Bulk()
  readonly #waiters = new Waiters()
  readonly #writer: Writer
  readonly #wake: Wake
  readonly #patrol: Patrol
  #listener: ((news: News) => void) | undefined
  #told = new Set<string>()
  #soon: NodeJS.Immediate | undefined
  #lastStore: Store | undefined

  constructor(options: EngineOptions) {
    const { file, clock, chance } = options
    this.file = file
    this.#options = options
    this.#clients = new Clients(options.outlives ? deathless() : ownName())
    this.#wake = new Wake(file, (token) => this.#woken(token))
    this.#writer = new Writer({
      file,
      clock,
      chance,
      open: () => this.#open(),
      begun: (store, now) => this.#begun(store, now),
      committed: (lines) => this.#committed(lines),
      failed: () => this.#failed(),
    })
    this.#patrol = new Patrol({
      clock,
      chance,
      clients: this.#clients,
      waiters: this.#waiters,
      store: () => this.#writer.store,
      hear: (store) => this.#hear(store),
      sweep: (dead) => this.#sweep(dead),
    })
  }

  enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#writer.run((lines) => lines.enter(claims), signal)
  }

  renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#writer.run((lines) => lines.renew(places), signal)
  }

  leave(places: readonly Pick<Place, 'key' | 'id'>[]): Promise<readonly boolean[]> {
    return this.#writer.run((lines) => lines.leave(places))
  }

  evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return this.#writer.run((lines) => lines.evict(key, token, how))
  }

  inspect(key: string): Promise<Line> {
    return this.#writer.run(({ scene }) => inspect(scene, key))
  }

  async *list(prefix: string): AsyncGenerator<LineSummary> {
    for (let from = prefix, except = ''; ; ) {
      const lines = await this.#writer.run(({ scene }) => page(scene, from, except, PAGE))
      for (const line of lines) {
        if (!line.key.startsWith(prefix)) return
        yield line
      }
      const last = lines.at(-1)
      if (last === undefined || lines.length < PAGE) return
      from = last.key
      except = last.key
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener === listener) this.#listener = undefined
      },
    }
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    await this.#writer.run(() => {})
    const stop = this.#patrol.watch(key, listener)
    return { [Symbol.asyncDispose]: async () => stop() }
  }

  /**
   * Let this process group live on with what this engine object has in lines: if our own process is killed, nobody
   * takes over early while a process of the group lives. It is in force when the promise resolves; start the group's
   * real work after that.
   */
  async alsoAlive(processGroup: number): Promise<void> {
    if (!Number.isSafeInteger(processGroup) || processGroup <= 1) {
      throw new RangeError(`a process group is a whole number above 1; got ${processGroup}`)
    }
    this.#clients.addGroup(processGroup)
    await this.#writer.run((lines) => lines.writeGroups())
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener = undefined
    this.#waiters.clear()
    this.#patrol.stop()
    clearImmediate(this.#soon)
    await this.#writer.close((lines) => lines.unregister())
    this.#wake.close()
  }

  // ---- the file ----

  async #open(): Promise<Store> {
    const { file, database, durability, allowNetworkFs, clock } = this.#options
    const driver = database === undefined ? await loadDriver() : undefined
    preparePlace(file, allowNetworkFs)
    const options = { file, durability, host: { boot: bootId(), now: clock.now() } }
    const store =
      driver === undefined ? Store.adopt(database as BroughtDatabase, options) : Store.open(driver.open(file), options)
    if (this.#lastStore !== undefined && !store.continues(this.#lastStore)) {
      // A connection that we did not open still has the old file, and would not exclude those who open the new one.
      if (driver === undefined)
        throw refusal(`'${file}' was deleted or replaced: open the database anew, and make a new engine with it`)
      // Other clients have our number, and those of the others, in there.
      this.#clients.own = undefined
      this.#wake.close()
    }
    this.#lastStore = store
    return store
  }

  #begun(store: Store, now: number): Lines {
    const { sql, epoch } = store
    return new Lines({
      sql,
      epoch,
      now,
      file: this.file,
      clients: this.#clients,
      bulk: this.#bulk,
      willWait: (client) => this.#wake.listen(client),
      tidyWakes: (isKnown) => this.#wake.tidy(isKnown),
    })
  }

  #committed({ effects, client, nextExpiry }: Lines): void {
    this.#clients.own = client
    if (effects.wake.size > 0) this.#wake.touch(effects.wake)
    for (const { key, id, stay } of effects.waiters) this.#waiters.set(key, id, stay)
    for (const news of effects.news) this.#tell(news)
    this.#patrol.changed(effects.changed)
    this.#patrol.arm(nextExpiry)
  }

  /** The number that we had a wake file for may be somebody else's in a moment, and so would be the file. */
  #failed(): void {
    if (this.#clients.own === undefined) this.#wake.close()
  }

  // ---- being woken ----

  /** `token`: of one of ours that holds now. It is told at once; a moment later we look for what else there may be. */
  #woken(token: number): void {
    const { clock } = this.#options
    const waiter = this.#waiters.byToken(token)
    const heldForMs = waiter === undefined ? 0 : waiter.until - clock.now()
    if (waiter === undefined || heldForMs <= 0) {
      this.#look()
      return
    }
    const { key, id } = waiter
    // Directly, and before anything else: we are inside nobody's call, and somebody waits.
    this.#listener?.({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs } })
    this.#waiters.set(key, id, undefined)
    this.#told.add(`${token} ${HELD}`)
    // Not now: the one who waited has gone on by then.
    this.#soon ??= setImmediate(this.#look)
  }

  readonly #look = (): void => {
    clearImmediate(this.#soon)
    this.#soon = undefined
    const { store } = this.#writer
    try {
      if (store !== undefined) this.#hear(store)
    } catch {
      // The patrol comes round soon, and whoever waits renews.
    }
  }

  /** What others have done to entries of ours, told once. A row is marked until its owner renews it or leaves. */
  #hear(store: Store): void {
    const { own } = this.#clients
    if (own === undefined) return
    const rows = store.sql.newsFor.all(own)
    const now = this.#options.clock.now()
    for (const { key, id, token, state, expires_at } of rows) {
      if (this.#told.has(`${token} ${state}`)) continue
      this.#waiters.set(key, id, undefined)
      if (state === REMOVED) this.#tell({ key, id, standing: { state: 'gone', why: 'evicted' } })
      else if (expires_at > now)
        this.#tell({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs: expires_at - now } })
    }
    this.#told = new Set(rows.map(({ token, state }) => `${token} ${state}`))
  }

  /** Later, as from a server: never from inside somebody else's call. */
  #tell(news: News): void {
    const listener = this.#listener
    if (listener !== undefined) queueMicrotask(() => listener(news))
  }

  #sweep(dead: readonly number[]): void {
    // Every transaction sweeps what has expired.
    this.#writer
      .run((lines) => {
        for (const client of dead) lines.bury(client)
      })
      .catch(() => {
        // Busy, full, closed: the next round tries again, and the verbs say why.
      })
  }
}
