/**
 * Waking a process that waits: one byte into a file that it watches, after the commit that gave it something.
 *
 * Each client that waits has a file of its own, so that a release wakes the one who now holds and not everybody who waits. Nothing is read from
 * the file: whoever is woken looks into the database. A wake-up that gets lost costs one round of the patrol (patrol.ts), nothing else, so every failure here is passed over.
 */
import {
  chmodSync,
  closeSync,
  constants,
  type FSWatcher,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  watch,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'

/** How many files of others are kept open. */
const MOST_OPEN = 16

export class Wake {
  readonly #file: string
  readonly #folder: string
  readonly #onWake: () => void
  /** Files of others, to be written to. */
  readonly #descriptors = new Map<number, number>()
  #watcher: FSWatcher | undefined
  #client: number | undefined

  constructor(file: string, onWake: () => void) {
    this.#file = file
    this.#folder = `${file}-wake`
    this.#onWake = onWake
  }

  /** Be woken as `client` from now on. */
  listen(client: number): void {
    if (this.#client === client) return
    this.close()
    this.#client = client
    try {
      const path = this.#make(client)
      // Not persistent: it must not keep the process alive.
      this.#watcher = watch(path, { persistent: false }, this.#onWake)
      this.#watcher.on('error', () => {})
    } catch {
      // Out of inotify instances, or a folder that cannot be written: the patrol still comes round.
    }
  }

  /** Wake these clients. One that has no file is not waiting any more, or was never able to listen. */
  touch(clients: Iterable<number>): void {
    for (const client of clients) {
      try {
        writeSync(this.#descriptorOf(client), '!', 0)
      } catch {}
    }
  }

  /** Remove what the dead left behind. */
  tidy(isKnown: (client: number) => boolean): void {
    try {
      for (const name of readdirSync(this.#folder)) if (!isKnown(Number(name))) this.#remove(Number(name))
    } catch {
      // Nobody has waited yet.
    }
  }

  close(): void {
    this.#watcher?.close()
    this.#watcher = undefined
    if (this.#client !== undefined) this.#remove(this.#client)
    this.#client = undefined
    for (const descriptor of this.#descriptors.values()) closeSync(descriptor)
    this.#descriptors.clear()
  }

  /** Kept open, because those who take turns wake each other again and again. A number is never given to another client. */
  #descriptorOf(client: number): number {
    const known = this.#descriptors.get(client)
    if (known !== undefined) return known
    const descriptor = openSync(this.#pathOf(client), constants.O_WRONLY)
    this.#descriptors.set(client, descriptor)
    if (this.#descriptors.size > MOST_OPEN) {
      const [oldest, its] = this.#descriptors.entries().next().value as [number, number]
      this.#descriptors.delete(oldest)
      closeSync(its)
    }
    return descriptor
  }

  #remove(client: number): void {
    try {
      rmSync(this.#pathOf(client), { force: true })
    } catch {}
  }

  /** Whoever may use the database may wake its users: the file gets the same permissions. It has its byte from the start, so that a full disk does not matter. */
  #make(client: number): string {
    const path = this.#pathOf(client)
    const mode = statSync(this.#file).mode & 0o666
    mkdirSync(this.#folder, { recursive: true })
    try {
      chmodSync(this.#folder, mode | ((mode & 0o444) >> 2))
    } catch {
      // It belongs to somebody else, who has seen to it.
    }
    const descriptor = openSync(path, 'w')
    writeSync(descriptor, '!')
    closeSync(descriptor)
    chmodSync(path, mode)
    return path
  }

  #pathOf(client: number): string {
    return join(this.#folder, String(client))
  }
}
