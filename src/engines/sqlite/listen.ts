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
 */
import {
  chmodSync,
  closeSync,
  constants,
  type FSWatcher,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  statSync,
  watch,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'

/** How many files of others are kept open. */
const MOST_OPEN = 16

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

  /** Be woken as this engine from now on. */
  listen(engineId: number): void {
    if (this.#engineId === engineId) return
    this.close()
    this.#engineId = engineId
    try {
      const path = this.#make(engineId)
      this.#own = openSync(path, constants.O_RDONLY)
      // Not persistent: it must not keep the process alive.
      this.#watcher = watch(path, { persistent: false }, () => this.#onWake(this.#read()))
      this.#watcher.on('error', () => {})
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
        writeSync(this.#descriptorOf(engineId), this.#record, 0, this.#record.byteLength, 0)
      } catch {}
    }
  }

  /** Remove the files of engines that are dead. */
  removeOld(isKnown: (engineId: number) => boolean): void {
    try {
      for (const name of readdirSync(this.#folder)) if (!isKnown(Number(name))) this.#remove(Number(name))
    } catch {
      // No process has waited yet, so there is no folder.
    }
  }

  close(): void {
    this.#watcher?.close()
    this.#watcher = undefined
    if (this.#own !== undefined) closeSync(this.#own)
    this.#own = undefined
    if (this.#engineId !== undefined) this.#remove(this.#engineId)
    this.#engineId = undefined
    for (const descriptor of this.#descriptors.values()) closeSync(descriptor)
    this.#descriptors.clear()
  }

  #read(): number {
    try {
      if (this.#own === undefined) return 0
      const length = readSync(this.#own, this.#record, 0, this.#record.byteLength, 0)
      const [token, again] = this.#record
      return length === this.#record.byteLength && token === again ? Number(token) : 0
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
    const descriptor = openSync(this.#pathOf(engineId), constants.O_WRONLY)
    this.#descriptors.set(engineId, descriptor)
    if (this.#descriptors.size > MOST_OPEN) {
      const [oldest, its] = this.#descriptors.entries().next().value as [number, number]
      this.#descriptors.delete(oldest)
      closeSync(its)
    }
    return descriptor
  }

  #remove(engineId: number): void {
    try {
      rmSync(this.#pathOf(engineId), { force: true })
    } catch {}
  }

  /**
   * The file gets the permissions of the database: a user that may use the one may write to the other. It has its bytes
   * from the start, so that a full disk does not matter.
   */
  #make(engineId: number): string {
    const path = this.#pathOf(engineId)
    const mode = statSync(this.#file).mode & 0o666
    mkdirSync(this.#folder, { recursive: true })
    try {
      chmodSync(this.#folder, mode | ((mode & 0o444) >> 2))
    } catch {
      // It belongs to another user, whose process has set the mode.
    }
    const descriptor = openSync(path, 'w')
    writeSync(descriptor, new BigUint64Array(2))
    closeSync(descriptor)
    chmodSync(path, mode)
    return path
  }

  #pathOf(engineId: number): string {
    return join(this.#folder, String(engineId))
  }
}
