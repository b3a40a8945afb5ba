/**
 * How a process that waits is woken: another process writes a few bytes into a file that it watches, after the commit
 * that gave it something.
 *
 * Each engine that waits has a file of its own, so that a release wakes only the process that now holds. The bytes are
 * the token of the grant. So the waiter with that token knows without a look into the database, which would take as
 * long as the rest of the way. The token is there twice: two processes that write at once could leave half of each, and
 * a token that is not there twice is not believed. A later write replaces an earlier one, so the woken process also
 * looks into the database, a moment later. A wake-up that gets lost costs one interval of recheck.ts, nothing else, so
 * every failure here is passed over.
 *
 * The database may be shared by users who do not trust each other with anything else, and it may lie in a folder that
 * strangers can write, such as /tmp. So the folder of the wake files has to belong to a user of the database, and only
 * users of the database may write it (a forged token would be believed). Whatever is found in it is taken for planted
 * until its descriptor says otherwise: no link is followed, no FIFO waited for, and only a file that Holdfast can have
 * made there is written to.
 */
import {
  closeSync,
  constants,
  existsSync,
  type FSWatcher,
  fchmodSync,
  fchownSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  type Stats,
  statSync,
  unlinkSync,
  watch,
  writeSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { refusal } from '../../clients/sqlite/errors.ts'
import { mayComeFromUserOf, type Ownership } from '../../clients/sqlite/folder.ts'
import { EngineError } from '../../core/errors.ts'

/** How many files of others are kept open. */
const MOST_OPEN = 16
const RECORD_BYTES = 16

/** Never through a link, and never waiting for the other end of a FIFO. Windows has neither. */
const AS_IT_IS = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0)
const FOLDER = constants.O_RDONLY | (constants.O_DIRECTORY ?? 0) | AS_IT_IS
const NEW_FILE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | AS_IT_IS

/** A name in an open folder, whatever becomes of the path to that folder. Linux can say that. */
const SELF = '/proc/self/fd'
const BY_DESCRIPTOR = process.platform === 'linux' && existsSync(SELF)

type PathOf = (name: number | string) => string

export class WakeFiles {
  readonly #file: string
  readonly #folder: string
  readonly #onWake: (token: number) => void
  readonly #record = new BigUint64Array(2)
  /** Files of other engines, to be written to. */
  readonly #descriptors = new Map<number, number>()
  #watcher: FSWatcher | undefined
  #own: number | undefined
  #engineId: number | undefined

  /** `onWake` hears the token of a grant, or 0. */
  constructor(file: string, onWake: (token: number) => void) {
    this.#file = file
    this.#folder = `${file}-wake`
    this.#onWake = onWake
  }

  /** Make the folder, before a stranger can. Throws if there is one that strangers can write. */
  prepare(): void {
    try {
      this.#make()
      this.#inFolder(() => {})
    } catch (error) {
      if (error instanceof EngineError) throw error
      // It cannot be made or read: recheck.ts still looks.
    }
  }

  /** Whether we are woken as this engine. */
  isListening(engineId: number): boolean {
    return this.#engineId === engineId
  }

  /** Be woken as this engine from now on. */
  listen(engineId: number): void {
    if (this.#engineId === engineId) return
    this.close()
    this.#engineId = engineId
    try {
      this.#make()
      this.#inFolder((pathOf, database) => {
        this.#own = makeFile(pathOf(engineId), database)
        // Not persistent: it must not keep the process alive.
        this.#watcher = watch(pathOf(engineId), { persistent: false }, () => this.#onWake(this.#read()))
      })
      this.#watcher?.on('error', () => {})
    } catch {
      // Out of inotify instances, or a folder that cannot be written: recheck.ts still looks.
    }
  }

  /**
   * Wake these engines, each with the token of a grant, or 0. One that has no file is not waiting any more, or was
   * never able to listen.
   */
  wake(engines: ReadonlyMap<number, number>): void {
    for (const [engineId, token] of engines) {
      try {
        this.#record.fill(BigInt(token))
        writeSync(this.#descriptorOf(engineId), this.#record, 0, RECORD_BYTES, 0)
      } catch {}
    }
  }

  /** Remove the files of engines that are dead. */
  removeOld(isKnown: (engineId: number) => boolean): void {
    try {
      this.#inFolder((pathOf) => {
        const names = readdirSync(pathOf('.')).filter((name) => /^\d+$/.test(name))
        for (const name of names) if (!isKnown(Number(name))) remove(pathOf(name))
      })
    } catch {}
  }

  close(): void {
    this.#watcher?.close()
    this.#watcher = undefined
    if (this.#own !== undefined) closeSync(this.#own)
    this.#own = undefined
    if (this.#engineId !== undefined) this.#removeOwn(this.#engineId)
    this.#engineId = undefined
    for (const descriptor of this.#descriptors.values()) closeSync(descriptor)
    this.#descriptors.clear()
  }

  #read(): number {
    try {
      if (this.#own === undefined) return 0
      const length = readSync(this.#own, this.#record, 0, RECORD_BYTES, 0)
      const [token, again] = this.#record
      return length === RECORD_BYTES && token === again ? Number(token) : 0
    } catch {
      return 0
    }
  }

  /**
   * Kept open, because processes that take turns wake each other again and again. A number is never given to another
   * engine.
   */
  #descriptorOf(engineId: number): number {
    const known = this.#descriptors.get(engineId)
    if (known !== undefined) return known
    const descriptor = this.#inFolder((pathOf, database) => openFile(pathOf(engineId), database))
    this.#descriptors.set(engineId, descriptor)
    if (this.#descriptors.size > MOST_OPEN) {
      const [oldest, its] = this.#descriptors.entries().next().value as [number, number]
      this.#descriptors.delete(oldest)
      closeSync(its)
    }
    return descriptor
  }

  #removeOwn(engineId: number): void {
    try {
      this.#inFolder((pathOf) => remove(pathOf(engineId)))
    } catch {}
  }

  /** Make the folder, if it is not there. */
  #make(): void {
    try {
      mkdirSync(this.#folder, { mode: 0o700 })
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  }

  /** Work in the folder. It stays the one that was checked: on Linux, paths lead through its descriptor. */
  #inFolder<Result>(work: (pathOf: PathOf, database: Stats) => Result): Result {
    const database = statSync(this.#file)
    const descriptor = this.#openFolder()
    try {
      this.#demandFolderOf(database, descriptor)
      const way = BY_DESCRIPTOR ? join(SELF, String(descriptor)) : this.#folder
      return work((name) => join(way, String(name)), database)
    } finally {
      closeSync(descriptor)
    }
  }

  #openFolder(): number {
    try {
      return openSync(this.#folder, FOLDER)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'ELOOP' || code === 'ENOTDIR') throw this.#refuse('is not a folder', error)
      throw error
    }
  }

  /** The folder gets the permissions of the database: a user that may use the one may make files in the other. */
  #demandFolderOf(database: Stats, descriptor: number): void {
    const found = fstatSync(descriptor)
    if (!mayComeFromUserOf(database, found, statSync(dirname(this.#folder))))
      throw this.#refuse(`belongs to user ${found.uid}`)
    const mode = database.mode & 0o666
    setOwnership(descriptor, database, mode | ((mode & 0o444) >> 2))
    if ((fstatSync(descriptor).mode & ~mode & 0o022) === 0) return
    throw this.#refuse('can be written by users who may not write the database')
  }

  #refuse(what: string, cause?: unknown): EngineError {
    const todo = `remove it (rm -r '${this.#folder}'), or name a file in a folder that only its users can write`
    return refusal(`'${this.#folder}' ${what}, so that wake-ups could be forged: ${todo}`, cause)
  }
}

/**
 * A new file, with the permissions of the database: a user that may use the one may write to the other. It has its
 * bytes from the start, so that a full disk does not matter. What is in its place is no file of ours, since numbers are
 * never given twice.
 */
function makeFile(path: string, database: Stats): number {
  const descriptor = openNew(path)
  try {
    setOwnership(descriptor, database, database.mode & 0o666)
    writeSync(descriptor, new BigUint64Array(2))
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    throw error
  }
}

function openNew(path: string): number {
  try {
    return openSync(path, NEW_FILE, 0o600)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    unlinkSync(path)
    return openSync(path, NEW_FILE, 0o600)
  }
}

/** The file of another engine, to be written to; throws for anything that `makeFile` does not make. */
function openFile(path: string, database: Stats): number {
  // Looked at before, because opening a device can do something; and after, because it may be another one by then.
  demandWakeFile(lstatSync(path), database)
  const descriptor = openSync(path, constants.O_WRONLY | AS_IT_IS)
  try {
    demandWakeFile(fstatSync(descriptor), database)
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    throw error
  }
}

function demandWakeFile(found: Stats, database: Stats): void {
  const isPlain = found.isFile() && found.nlink === 1 && found.size === RECORD_BYTES
  // The folder that it is in has the permissions of the database.
  if (!isPlain || !mayComeFromUserOf(database, found, database)) throw new Error('not a wake file')
}

/**
 * As far as this user may: only root can give a file away, and it does so for the owner of the database, who could not
 * write to it otherwise.
 */
function setOwnership(descriptor: number, database: Ownership, mode: number): void {
  const found = fstatSync(descriptor)
  const self = process.geteuid?.()
  if (self !== 0 && found.uid !== self) return
  const uid = self === 0 ? database.uid : found.uid
  try {
    if (found.uid !== uid || found.gid !== database.gid) fchownSync(descriptor, uid, database.gid)
  } catch {
    // Not a member of that group.
  }
  if ((found.mode & 0o777) !== mode) fchmodSync(descriptor, mode)
}

function remove(path: string): void {
  try {
    unlinkSync(path)
  } catch {}
}
