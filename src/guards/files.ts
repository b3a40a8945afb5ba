/**
 * `holdfast/guards/files`: files that are replaced as a whole, behind a guard. A file system compares no tokens, so
 * the marks are in a small SQLite database beside the files. The check and the rename happen inside of one immediate
 * transaction of it, and only one process at a time has such a transaction.
 *
 *     const guarded = guard({ folder: 'reports' })
 *     const before = await guarded.read(lease, 'daily.json')
 *     await guarded.write(lease, 'daily.json', after)
 *
 * A write goes: the new content into a temporary file, synced; the marks raised, and committed; then, in a second
 * transaction, look at the marks again, rename, commit. The marks are stored first, because a process can be killed at
 * any moment: between a rename and the commit of its mark, it would leave a new file under an old mark, and an older
 * holder could write again. The other way round, it leaves a raised mark and the old file, which is a write that did
 * not happen.
 *
 * It protects from all processes of this host that write through a guard of the same folder.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, constants, fstatSync, lstatSync, openSync, readFile, renameSync, type Stats } from 'node:fs'
import { open, realpath, rm } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path'
import { promisify } from 'node:util'
import { configure, type Database, loadDriver, rollback, schemaOf } from '../clients/sqlite/driver.ts'
import { asEngineError, codeOf, isBusy } from '../clients/sqlite/errors.ts'
import { preparePlace, withoutLinks } from '../clients/sqlite/folder.ts'
import { systemChance, systemClock } from '../core/clock.ts'
import { type Duration, parseDuration } from '../core/duration.ts'
import type { EngineCall } from '../core/failed-call.ts'
import { checkOptions, type OptionNames } from '../core/options.ts'
import { type LeaseLike, newerFormat, resourceToken } from './lease-like.ts'
import { checkToken, FORMAT, type ForgetAfter, MARKS_TABLE, type Mark, parseForget } from './marks.ts'
import { type SqliteGuard, type SqliteGuardOptions, guard as sqliteGuard } from './sqlite.ts'

export type { LeaseLike } from './lease-like.ts'
export type { ForgetAfter, Mark, Marks } from './marks.ts'

/** Options of a guard of files. */
export interface FilesGuardOptions {
  /** Files are below it, and named from it. It must be there. */
  readonly folder: string
  /**
   * The database of the marks: `.holdfast-marks.db` in the folder unless given. All who write these files
   * name the same one.
   */
  readonly file?: string
  /** How long to wait while other processes use the marks: `'30s'` unless given. Then `EngineError`. */
  readonly wait?: Duration
  /**
   * How long to keep the mark of a file that no token uses, by the clock of this host: for ever unless given. An older
   * holder is let in again after that. Writes remove the marks whose time is over, now and then.
   */
  readonly forget?: ForgetAfter
}

const OPTIONS: OptionNames<FilesGuardOptions> = { folder: true, file: true, wait: true, forget: true }

/** `path` is from the folder, and is also the name of the resource. */
export interface FilesGuard extends AsyncDisposable {
  /** What is in the file; undefined if there is none. Rejects with `StaleTokenError` if a higher token has written. */
  read(lease: LeaseLike, path: string): Promise<Buffer | undefined>
  /**
   * Put this in its place, all at once, on the disk before it answers. Rejects with `StaleTokenError` if a higher token
   * has read or written; the file is as it was then.
   */
  write(lease: LeaseLike, path: string, content: string | Uint8Array): Promise<void>
  /** The marks of all files whose path begins so, by name. */
  list(prefix?: string): Promise<readonly Mark[]>
  /** Forget a file, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then. */
  reset(path: string, seen: bigint): Promise<boolean>
}

const LONGEST_PAUSE_MS = 8
/** How often a guard looks for marks whose time is over. */
const FORGET_EVERY_MS = 60_000

/** A guard of the files in a folder: it refuses stale tokens. */
export function guard(options: FilesGuardOptions): FilesGuard {
  checkOptions('guard()', options, OPTIONS)
  const folder = resolve(options.folder)
  const file = withoutLinks(resolve(options.file ?? join(folder, '.holdfast-marks.db')))
  const forgetMs = parseForget(options.forget)
  const marks = new MarksFile(file, parseDuration(options.wait ?? '30s', 'wait'), forgetMs)
  let forgotAt = Number.NEGATIVE_INFINITY

  return {
    read: async (lease, path) => {
      resourceToken(lease, 'read', path)
      const full = await placeOf(folder, path, file)
      let descriptor: number | undefined
      try {
        // Opened in the same step, and read afterwards: a rename to this place in between changes nothing, because the
        // descriptor is that of the file from before.
        await marks.alone('guard read', (database, guarded) => {
          guarded.read(database, lease, path)
          descriptor = openIfThere(full, file)
        })
        return descriptor === undefined ? undefined : await promisify(readFile)(descriptor)
      } finally {
        if (descriptor !== undefined) closeSync(descriptor)
      }
    },
    write: async (lease, path, content) => {
      resourceToken(lease, 'write', path)
      const full = await placeOf(folder, path, file)
      // In the same folder, since only there a rename is one step.
      const beside = join(dirname(full), `.holdfast-${randomUUID()}.tmp`)
      try {
        await store(beside, content)
        await marks.alone('guard write', (database, guarded) => {
          guarded.write(database, lease, path)
          if (forgetMs === undefined || systemClock.now() - forgotAt < FORGET_EVERY_MS) return
          forgotAt = systemClock.now()
          guarded.forget(database)
        })
        await marks.alone('guard write', (database) => {
          checkAgain(database, lease, path)
          renameSync(beside, full)
        })
      } finally {
        await rm(beside, { force: true })
      }
      await syncFolder(dirname(full))
    },
    list: (prefix) => marks.alone('guard list', (database, guarded) => guarded.list(database, prefix)),
    reset: (path, seen) => marks.alone('guard reset', (database, guarded) => guarded.reset(database, path, seen)),
    [Symbol.asyncDispose]: () => marks.close(),
  }
}

/**
 * Throws if a higher token has come since the marks were raised. It changes nothing, so that after the rename there is
 * nothing that could fail to be committed.
 */
function checkAgain(database: Database, lease: LeaseLike, path: string): void {
  const { token } = resourceToken(lease, 'write', path)
  const marksOf = database.prepare(
    `select format, cast(seen as text) as seen from ${schemaOf(database)}.${MARKS_TABLE} where resource = ?`,
  )
  // Without a row it was reset meanwhile: no higher token is known.
  const [{ format, seen } = { format: FORMAT, seen: '0' }] = marksOf.all(path) as { format: number; seen: string }[]
  if (format > FORMAT) throw newerFormat('sqlite', path)
  checkToken(path, token, 'write', { seen: BigInt(seen), written: 0n })
}

interface OpenMarks {
  readonly database: Database
  /** The guard of the table there. */
  readonly guarded: SqliteGuard
}

/** The database of the marks, opened when first needed. */
class MarksFile {
  readonly #file: string
  readonly #waitMs: number
  readonly #forget: Pick<SqliteGuardOptions, 'forget'>
  #marks: Promise<OpenMarks> | undefined

  constructor(file: string, waitMs: number, forgetMs: number | undefined) {
    this.#file = file
    this.#waitMs = waitMs
    this.#forget = forgetMs === undefined ? {} : { forget: forgetMs }
  }

  /**
   * Work inside of an immediate transaction, which begins and ends in one turn of the event loop: this connection has
   * one at a time. What is thrown rolls it back.
   */
  async alone<Result>(call: EngineCall, work: (database: Database, guarded: SqliteGuard) => Result): Promise<Result> {
    this.#marks ??= this.#open()
    const file = this.#file
    const marks = await this.#marks.catch((error: unknown) => {
      throw asEngineError(call, error, { file, during: 'open' })
    })
    try {
      return await this.#withRetries(() => {
        marks.database.exec('begin immediate')
        return this.#inside(call, marks, work)
      })
    } catch (error) {
      throw codeOf(error) === undefined ? error : asEngineError(call, error, { file, during: 'work' })
    }
  }

  async close(): Promise<void> {
    const marks = await this.#marks
    this.#marks = undefined
    marks?.database.close()
  }

  #inside<Result>(
    call: EngineCall,
    { database, guarded }: OpenMarks,
    work: (database: Database, guarded: SqliteGuard) => Result,
  ): Result {
    try {
      const result = work(database, guarded)
      database.exec('commit')
      return result
    } catch (error) {
      rollback(database)
      // As an EngineError, so that `#withRetries` does not take it for a busy file and try again.
      throw codeOf(error) === undefined ? error : asEngineError(call, error, { file: this.#file, during: 'commit' })
    }
  }

  async #open(): Promise<OpenMarks> {
    let database: Database | undefined
    try {
      // First what takes time: a failure that came at once would be remembered, and not be tried again.
      const driver = await loadDriver()
      preparePlace(this.#file)
      const opened = driver.openAlone(this.#file)
      database = opened
      const guarded = sqliteGuard({ table: [schemaOf(opened), MARKS_TABLE], ...this.#forget })
      await this.#withRetries(() => {
        configure(opened, 'full')
        guarded.setup(opened)
      })
      return { database: opened, guarded }
    } catch (error) {
      database?.close()
      this.#marks = undefined
      throw error
    }
  }

  /** Try again while the file is busy. SQLite's own waiting would block the event loop. */
  async #withRetries<Result>(attempt: () => Result): Promise<Result> {
    const until = systemClock.now() + this.#waitMs
    for (;;) {
      try {
        return attempt()
      } catch (error) {
        if (!isBusy(error) || systemClock.now() > until) throw error
      }
      const awake = systemClock.stayAlive()
      await new Promise<void>((resume) => void systemClock.timer(systemChance.fraction() * LONGEST_PAUSE_MS, resume))
      awake.cancel()
    }
  }
}

/**
 * Where the file is. It has one name, because the marks are kept by name: other spellings are refused, and ways through
 * symbolic links. The file of the marks itself is refused, too.
 */
async function placeOf(folder: string, path: string, marks: string): Promise<string> {
  const full = resolve(folder, path)
  const back = relative(folder, full).split(sep).join('/')
  if (back === '' || back.startsWith('..') || isAbsolute(back) || back !== path)
    throw new RangeError(`a path must lead from the folder to a file in it, in one spelling: '${path}' is '${back}'`)
  const real = await realPlaceOf(full)
  if (real !== join(await realFolderOf(folder), path))
    throw new RangeError(`'${path}' leads through a symbolic link: name the file itself`)
  // Not even looked at: closing any descriptor of a database drops the locks that SQLite has on it.
  const ours = await realPlaceOf(marks)
  if (['', '-wal', '-shm', '-journal'].some((end) => real === ours + end))
    throw new RangeError(`'${path}' is where the marks are`)
  return full
}

async function realPlaceOf(file: string): Promise<string> {
  return join(await realFolderOf(dirname(file)), basename(file))
}

/** A folder that is not there cannot be a link; those above it can. */
async function realFolderOf(folder: string): Promise<string> {
  return await realpath(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return realPlaceOf(folder)
    throw error
  })
}

/**
 * A link at the end of the way is refused (ELOOP), where the system can do that, and a FIFO is not waited for: it would
 * stop this process inside of the transaction, and with it all other users of the marks.
 */
function openIfThere(file: string, marks: string): number | undefined {
  const found = lstatSync(file, { throwIfNoEntry: false })
  if (found === undefined) return undefined
  // A hard link to the file of the marks: to close it would drop the locks that SQLite has on them, as it would under
  // their own name.
  if (found.isFile() && found.nlink > 1 && isSameFile(found, lstatSync(marks)))
    throw new RangeError(`'${file}' is where the marks are`)
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants
  const descriptor = openSync(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  if (fstatSync(descriptor).isFile()) return descriptor
  closeSync(descriptor)
  throw new RangeError(`'${file}' is not a regular file`)
}

function isSameFile(one: Stats, other: Stats): boolean {
  return one.dev === other.dev && one.ino === other.ino
}

async function store(file: string, content: string | Uint8Array): Promise<void> {
  await using handle = await open(file, 'wx')
  await handle.writeFile(content)
  await handle.sync()
}

/** So that the rename is there after a power cut, too. Not every system lets a folder be opened. */
async function syncFolder(folder: string): Promise<void> {
  const { O_RDONLY, O_DIRECTORY } = constants
  const handle = await open(folder, O_RDONLY | O_DIRECTORY).catch(() => undefined)
  await handle?.sync().catch(() => undefined)
  await handle?.close()
}
