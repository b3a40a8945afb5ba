/**
 * The engine: the verbs of the contract, each a piece of work for the next transaction (writer.ts, transaction.ts), and
 * what follows from a commit. Our own waiters are told directly, the waiters of other engine objects are woken
 * (listen.ts), and the timer of recheck.ts is set.
 */

import { type BroughtDatabase, loadDriver } from '../../clients/sqlite/driver.ts'
import { refusal } from '../../clients/sqlite/errors.ts'
import { preparePlace } from '../../clients/sqlite/folder.ts'
import { bootId } from '../../clients/sqlite/host.ts'
import type { Chance, Clock, Timer } from '../../core/clock.ts'
import type {
  Claim,
  Engine,
  EntryName,
  Finding,
  Line,
  LineSummary,
  News,
  Place,
  Standing,
  Traits,
} from '../../core/engine.ts'
import type { Store } from '../../core/store.ts'
import { BulkStatements } from './bulk.ts'
import { diagnose } from './diagnose.ts'
import { WakeFiles } from './listen.ts'
import { LockFile } from './lock-file.ts'
import { ownProcess, withoutProcess } from './process.ts'
import { SqliteOwnWaiters, SqliteRecheck } from './recheck.ts'
import { EngineRegistry } from './registry.ts'
import { HELD, REMOVED } from './sql/schema.ts'
import { SqliteStore } from './store.ts'
import { LINE_BOUND, SqliteTransaction } from './transaction.ts'
import { SqliteWriter } from './writer.ts'

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
  takesSignal: ['enter', 'renew'],
  tokensSurvive:
    'release, expiry, kill and restart, whatever the clock does; after the loss of the file, or a power cut with durability normal, ' +
    'they go on from the wall clock, which must not have been set back meanwhile',
  survives:
    'the death of any process, a full disk and a restart of the machine; it serves the processes of one host, on a local disk',
}

/**
 * A waiter can be woken before it waits. A holder that does not wait is ready to hear of its eviction only after this
 * long, so that a short stay does not pay for a file of its own.
 */
const LISTEN_AFTER_MS = 50

/** How many lines of a listing are read at once. */
const PAGE = 500

export interface SqliteEngineSetup {
  readonly file: string
  /** The user has named neither a file nor a database. */
  readonly isDefaultFile: boolean
  readonly database: BroughtDatabase | undefined
  readonly durability: 'normal' | 'full'
  readonly outlives: boolean
  readonly allowNetworkFs: boolean
  readonly clock: Clock
  readonly chance: Chance
}

/** The engine on a SQLite file, for all processes of one host. Made by `sqlite()`. */
export class SqliteEngine implements Engine {
  readonly name = 'sqlite'
  readonly traits: Traits = traits
  /** Where the lines are kept. */
  readonly file: string
  readonly store: Store
  readonly #options: SqliteEngineSetup
  readonly #registry: EngineRegistry
  readonly #bulk = new BulkStatements()
  readonly #waiters = new SqliteOwnWaiters()
  readonly #writer: SqliteWriter
  readonly #wakeFiles: WakeFiles
  readonly #recheck: SqliteRecheck
  #listener: ((news: News) => void) | undefined
  #told = new Set<string>()
  #readSoon: NodeJS.Immediate | undefined
  #listenSoon: Timer | undefined
  #lastLockFile: LockFile | undefined

  /** @internal */
  constructor(options: SqliteEngineSetup) {
    const { file, clock, chance } = options
    this.file = file
    this.#options = options
    this.#registry = new EngineRegistry(options.outlives ? withoutProcess() : ownProcess())
    this.#wakeFiles = new WakeFiles(file, (token) => this.#woken(token))
    this.#writer = new SqliteWriter({
      file,
      clock,
      chance,
      open: () => this.#open(),
      begun: (lockFile, now) => this.#begun(lockFile, now),
      committed: (transaction) => this.#committed(transaction),
      failed: () => this.#failed(),
    })
    this.store = new SqliteStore({ file, clock, writer: this.#writer })
    this.#recheck = new SqliteRecheck({
      clock,
      chance,
      registry: this.#registry,
      waiters: this.#waiters,
      lockFile: () => this.#writer.lockFile,
      readNews: (lockFile) => this.#readNews(lockFile),
      sweep: (dead) => this.#sweep(dead),
    })
  }

  enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#writer.run('enter', (transaction) => transaction.enter(claims), signal)
  }

  renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#writer.run('renew', (transaction) => transaction.renew(places), signal)
  }

  leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    return this.#writer.run('leave', (transaction) => transaction.leave(places))
  }

  evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return this.#writer.run('evict', (transaction) => transaction.evict(key, token, how))
  }

  inspect(key: string): Promise<Line> {
    return this.#writer.run('inspect', (transaction) => transaction.inspect(key))
  }

  async *list(prefix: string): AsyncGenerator<LineSummary> {
    for (let from = prefix, except = ''; ; ) {
      const lines = await this.#writer.run('list', (transaction) => transaction.list(from, except, PAGE))
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
    await this.#writer.run('watch', () => {})
    const stop = this.#recheck.watch(key, listener)
    return { [Symbol.asyncDispose]: async () => stop() }
  }

  /**
   * Let this process group live on with the entries of this engine object: if our own process is killed, no waiter
   * takes over early while a process of the group lives. It is in force when the promise resolves; start the group's
   * real work after that.
   */
  async alsoAlive(processGroup: number): Promise<void> {
    if (!Number.isSafeInteger(processGroup) || processGroup <= 1) {
      throw new RangeError(`a process group is a whole number above 1; got ${processGroup}`)
    }
    this.#registry.addGroup(processGroup)
    await this.#writer.run('enter', (transaction) => transaction.writeGroups())
  }

  /** What about the file could break its promises. For `holdfast doctor`. */
  diagnose(): Promise<readonly Finding[]> {
    return diagnose(this.file, this.#options.isDefaultFile)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener = undefined
    this.#waiters.clear()
    this.#recheck.stop()
    clearImmediate(this.#readSoon)
    await this.#writer.close((transaction) => transaction.unregister())
    this.#listenSoon?.cancel()
    this.#wakeFiles.close()
  }

  // ---- the file ----

  async #open(): Promise<LockFile> {
    const { file, database, durability, clock } = this.#options
    const driver = database === undefined ? await loadDriver() : undefined
    preparePlace(file, this.#options)
    const options = { file, durability, host: { boot: bootId(), now: clock.now() } }
    const lockFile =
      driver === undefined
        ? LockFile.adopt(database as BroughtDatabase, options)
        : LockFile.open(driver.openAlone(file), options)
    try {
      this.#wakeFiles.prepare()
    } catch (error) {
      lockFile.close()
      throw error
    }
    if (this.#lastLockFile !== undefined && !lockFile.isSameAs(this.#lastLockFile)) {
      // A connection that the user opened still has the old file, and would not exclude processes that open the new
      // one.
      if (driver === undefined)
        throw refusal(`'${file}' was deleted or replaced: open the database anew, and make a new engine with it`)
      // In another file, our number and the numbers of the others belong to other engines.
      this.#registry.engineId = undefined
      this.#wakeFiles.close()
    }
    this.#lastLockFile = lockFile
    return lockFile
  }

  #begun(lockFile: LockFile, now: number): SqliteTransaction {
    const { sql, epoch } = lockFile
    return new SqliteTransaction({
      sql,
      recordSql: () => lockFile.records,
      poolSql: () => lockFile.pools,
      epoch,
      now,
      file: this.file,
      registry: this.#registry,
      bulk: this.#bulk,
      prepareToWait: (engineId) => this.#wakeFiles.listen(engineId),
      removeOldWakeFiles: (isKnown) => this.#wakeFiles.removeOld(isKnown),
    })
  }

  #committed({ afterCommit, engineId, nextExpiry }: SqliteTransaction): void {
    this.#registry.engineId = engineId
    if (afterCommit.wake.size > 0) this.#wakeFiles.wake(afterCommit.wake)
    for (const { key, id, entry } of afterCommit.waiters) this.#waiters.set(key, id, entry)
    for (const news of afterCommit.news) this.#tell(news)
    this.#recheck.changed(afterCommit.changed)
    this.#recheck.arm(nextExpiry)
    if (engineId !== undefined && !this.#wakeFiles.isListening(engineId))
      this.#listenSoon ??= this.#options.clock.timer(LISTEN_AFTER_MS, () => this.#listen())
  }

  #listen(): void {
    this.#listenSoon = undefined
    const { engineId } = this.#registry
    if (engineId === undefined) return
    this.#wakeFiles.listen(engineId)
    // What was said before we listened.
    this.#readNewsNow()
  }

  /**
   * The transaction has failed, so the number that this engine made a wake file for is not its own: another engine may
   * be given it, and with it the file.
   */
  #failed(): void {
    if (this.#registry.engineId === undefined) this.#wakeFiles.close()
  }

  // ---- being woken ----

  /** `token`: of an entry of ours that holds now. It is told at once; a moment later we look for further news. */
  #woken(token: number): void {
    const { clock } = this.#options
    const waiter = this.#waiters.byToken(token)
    const heldForMs = waiter === undefined ? 0 : waiter.until - clock.now()
    if (waiter === undefined || heldForMs <= 0) {
      this.#readNewsNow()
      return
    }
    const { key, id } = waiter
    // Directly, and before anything else: no call of a user is under way here, and a waiter waits.
    this.#listener?.({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs } })
    this.#waiters.set(key, id, undefined)
    this.#told.add(`${token} ${HELD}`)
    // Later: the waiter goes on first.
    this.#readSoon ??= setImmediate(this.#readNewsNow)
  }

  readonly #readNewsNow = (): void => {
    clearImmediate(this.#readSoon)
    this.#readSoon = undefined
    const { lockFile } = this.#writer
    try {
      if (lockFile !== undefined) this.#readNews(lockFile)
    } catch {
      // recheck.ts looks again soon, and a waiter renews.
    }
  }

  /**
   * What other engines have done to entries of ours, told once. A row has `news` until its owner renews it or leaves.
   */
  #readNews(lockFile: LockFile): void {
    const { engineId } = this.#registry
    if (engineId === undefined) return
    const rows = lockFile.sql.newsFor.all(engineId)
    const now = this.#options.clock.now()
    const told = new Set<string>()
    for (const { key, id, token, state, evicted, expires_at } of rows) {
      const name = `${token} ${evicted === 1 ? REMOVED : state}`
      told.add(name)
      if (this.#told.has(name)) continue
      this.#waiters.set(key, id, undefined)
      if (evicted === 1) this.#tell({ key, id, standing: { state: 'gone', why: 'evicted' } })
      else if (expires_at > now)
        this.#tell({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs: expires_at - now } })
    }
    this.#told = told
  }

  /** Later, as from a server: never from inside a call of a user. */
  #tell(news: News): void {
    const listener = this.#listener
    if (listener !== undefined) queueMicrotask(() => listener(news))
  }

  #sweep(dead: readonly number[]): void {
    // Every transaction removes what has expired.
    this.#writer
      .run('leave', (transaction) => {
        for (const engineId of dead) transaction.removeDead(engineId)
      })
      .catch(() => {
        // Busy, full, closed: the next check tries again, and the verbs say why.
      })
  }
}
