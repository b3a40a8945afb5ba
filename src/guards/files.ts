/**
 * `holdfast/guards/files`: files that are replaced as a whole, fenced. A file system compares no tokens, so the marks
 * are in a small SQLite database beside the files, and the check and the rename happen inside of one immediate
 * transaction of it: whoever has it is the only one who renames.
 *
 *     const fence = guard({ folder: 'reports' })
 *     const before = await fence.read(lease, 'daily.json')
 *     await fence.write(lease, 'daily.json', after)
 *
 * A write goes: the new content into a temporary file, synced; the marks raised, and committed; then, in a second
 * transaction, look at the marks again, rename, commit. The marks are stored first, because a process can be killed at
 * any moment: between a rename and the commit of its mark, it would leave a new file under an old mark, and an older
 * holder could write again. The other way round, it leaves a raised mark and the old file, which is a write that did
 * not happen.
 *
 * It protects from everybody who goes through a guard of the same folder, on this host.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, constants, openSync, readFile, renameSync } from 'node:fs'
import { open, realpath, rm } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path'
import { promisify } from 'node:util'
import { type Database, loadDriver } from '../clients/sqlite/driver.ts'
import { codeOf, fault, isBusy } from '../clients/sqlite/errors.ts'
import { preparePlace } from '../clients/sqlite/folder.ts'
import { systemChance, systemClock } from '../core/clock.ts'
import { configure, rollback } from '../engines/sqlite/schema.ts'
import { type Bearer, newer, visit } from './bearer.ts'
import { demand, FORMAT, type Mark } from './marks.ts'
import { guard as sqliteGuard } from './sqlite.ts'

export type { Bearer } from './bearer.ts'
export type { Mark, Marks } from './marks.ts'

export interface FilesGuardOptions {
  /** Files are below it, and named from it. It must be there. */
  readonly folder: string
  /**
   * The database of the marks: `.holdfast-fence.db` in the folder unless given. Everybody who writes these files names
   * the same one.
   */
  readonly file?: string
  /** How long to wait for others who are at the marks, in milliseconds: 30,000 unless given. Then `EngineError`. */
  readonly patienceMs?: number
}

/** `path` is from the folder, and is also the name of the resource. */
export interface FilesGuard extends AsyncDisposable {
  /** What is in the file; undefined if there is none. Rejects with `StaleTokenError` if a higher token has written. */
  read(bearer: Bearer, path: string): Promise<Buffer | undefined>
  /**
   * Put this in its place, all at once, on the disk before it answers. Rejects with `StaleTokenError` if a higher token
   * has read or written; the file is as it was then.
   */
  write(bearer: Bearer, path: string, content: string | Uint8Array): Promise<void>
  /** The marks of all files whose path begins so, by name. */
  list(prefix?: string): Promise<readonly Mark[]>
  /** Forget a file, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then. */
  reset(path: string, seen: bigint): Promise<boolean>
}

const LONGEST_PAUSE_MS = 8
const TABLE = 'holdfast_fence'

export function guard(options: FilesGuardOptions): FilesGuard {
  const folder = resolve(options.folder)
  const file = resolve(options.file ?? join(folder, '.holdfast-fence.db'))
  const marks = new MarkFile(file, options.patienceMs ?? 30_000)
  const fence = sqliteGuard({ table: TABLE })

  return {
    read: async (bearer, path) => {
      visit(bearer, 'read', path)
      const full = await placeOf(folder, path, file)
      let descriptor: number | undefined
      try {
        // Opened in the same step, and read afterwards: whatever is renamed to this place meanwhile, it is the file
        // that was there.
        await marks.alone((database) => {
          fence.touch(database, bearer, path)
          descriptor = openIfThere(full)
        })
        return descriptor === undefined ? undefined : await promisify(readFile)(descriptor)
      } finally {
        if (descriptor !== undefined) closeSync(descriptor)
      }
    },
    write: async (bearer, path, content) => {
      visit(bearer, 'write', path)
      const full = await placeOf(folder, path, file)
      // In the same folder, since only there a rename is one step.
      const beside = join(dirname(full), `.holdfast-${randomUUID()}.tmp`)
      try {
        await store(beside, content)
        await marks.alone((database) => fence.write(database, bearer, path))
        await marks.alone((database) => {
          demandStill(database, bearer, path)
          renameSync(beside, full)
        })
      } finally {
        await rm(beside, { force: true })
      }
      await syncFolder(dirname(full))
    },
    list: (prefix) => marks.alone((database) => fence.list(database, prefix)),
    reset: (path, seen) => marks.alone((database) => fence.reset(database, path, seen)),
    [Symbol.asyncDispose]: () => marks.close(),
  }
}

/**
 * Whether nobody higher has come since the marks were raised. It changes nothing, so that after the rename there is
 * nothing that could fail to be committed.
 */
function demandStill(database: Database, bearer: Bearer, path: string): void {
  const { token } = visit(bearer, 'write', path)
  const looking = database.prepare(`select format, cast(seen as text) as seen from ${TABLE} where resource = ?`)
  // Without a row it was reset meanwhile: nobody higher is known.
  const [{ format, seen } = { format: FORMAT, seen: '0' }] = looking.all(path) as { format: number; seen: string }[]
  if (format > FORMAT) throw newer('sqlite', path)
  demand(path, token, 'write', { seen: BigInt(seen), written: 0n })
}

/** The database of the marks, opened when first needed. */
class MarkFile {
  readonly #file: string
  readonly #patienceMs: number
  #database: Promise<Database> | undefined

  constructor(file: string, patienceMs: number) {
    this.#file = file
    this.#patienceMs = patienceMs
  }

  /**
   * Work inside of an immediate transaction, which begins and ends in one turn of the event loop: this connection has
   * one at a time. What is thrown rolls it back.
   */
  async alone<Result>(work: (database: Database) => Result): Promise<Result> {
    this.#database ??= this.#open()
    const database = await this.#database
    return await this.#patiently(() => {
      database.exec('begin immediate')
      return this.#inside(database, work)
    })
  }

  async close(): Promise<void> {
    const database = await this.#database
    this.#database = undefined
    database?.close()
  }

  #inside<Result>(database: Database, work: (database: Database) => Result): Result {
    try {
      const result = work(database)
      database.exec('commit')
      return result
    } catch (error) {
      rollback(database)
      // In our words, so that it is not taken for somebody else's turn and tried again.
      throw codeOf(error) === undefined ? error : fault(error, this.#file, 'commit')
    }
  }

  async #open(): Promise<Database> {
    let database: Database | undefined
    try {
      preparePlace(this.#file, false)
      const opened = (await loadDriver()).open(this.#file)
      database = opened
      await this.#patiently(() => {
        configure(opened, 'full')
        sqliteGuard({ table: TABLE }).setup(opened)
      })
      return opened
    } catch (error) {
      database?.close()
      this.#database = undefined
      throw fault(error, this.#file, 'open')
    }
  }

  /** Not by SQLite's own waiting, which blocks the event loop. */
  async #patiently<Result>(attempt: () => Result): Promise<Result> {
    const until = systemClock.now() + this.#patienceMs
    for (;;) {
      try {
        return attempt()
      } catch (error) {
        if (!isBusy(error)) throw codeOf(error) === undefined ? error : fault(error, this.#file, 'work')
        if (systemClock.now() > until) throw fault(error, this.#file, 'work')
      }
      const awake = systemClock.stayAlive()
      await new Promise<void>((resume) => void systemClock.timer(systemChance.fraction() * LONGEST_PAUSE_MS, resume))
      awake.cancel()
    }
  }
}

/**
 * Where the file is. It has one name, because the marks are kept by name: other spellings are refused, and ways through
 * symbolic links. The marks themselves are no file of ours.
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

/** A link at the end of the way is refused (ELOOP), where the system can do that. */
function openIfThere(file: string): number | undefined {
  try {
    return openSync(file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

async function store(file: string, content: string | Uint8Array): Promise<void> {
  await using handle = await open(file, 'wx')
  await handle.writeFile(content)
  await handle.sync()
}

/** So that the rename is there after a power cut, too. Not every system lets a folder be opened. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r').catch(() => undefined)
  await handle?.sync().catch(() => undefined)
  await handle?.close()
}
