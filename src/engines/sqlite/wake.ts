/**
 * Waking a process that waits: a few bytes into a file that it watches, after the commit that gave it something.
 *
 * Each client that waits has a file of its own, so that a release wakes the one who now holds and not everybody who
 * waits. The bytes are the token of the grant, so that whoever waits with it knows without a look into the database,
 * which takes as long as the rest of the way. They are there twice: two who write at once could leave half of each, and
 * a token that is not there twice is none. The next one to write takes the place of the last: who is woken also looks,
 * later. A wake-up that gets lost costs one round of the patrol (patrol.ts), nothing else, so every failure here is
 * passed over.
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

export class Wake {
  readonly #file: string
  readonly #folder: string
  readonly #onWake: (token: number) => void
  readonly #record = new BigUint64Array(2)
  /** Files of others, to be written to. */
  readonly #descriptors = new Map<number, number>()
  #watcher: FSWatcher | undefined
  #own: number | undefined
  #client: number | undefined

  /** `onWake` hears the token of a grant, or 0. */
  constructor(file: string, onWake: (token: number) => void) {
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
      this.#own = openSync(path, constants.O_RDONLY)
      // Not persistent: it must not keep the process alive.
      this.#watcher = watch(path, { persistent: false }, () => this.#onWake(this.#read()))
      this.#watcher.on('error', () => {})
    } catch {
      // Out of inotify instances, or a folder that cannot be written: the patrol still comes round.
    }
  }

  /**
   * Wake these clients, each with the token of a grant, or 0. One that has no file is not waiting any more, or was
   * never able to listen.
   */
  touch(clients: ReadonlyMap<number, number>): void {
    for (const [client, token] of clients) {
      try {
        this.#record.fill(BigInt(token))
        writeSync(this.#descriptorOf(client), this.#record, 0, this.#record.byteLength, 0)
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
    if (this.#own !== undefined) closeSync(this.#own)
    this.#own = undefined
    if (this.#client !== undefined) this.#remove(this.#client)
    this.#client = undefined
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
   * Kept open, because those who take turns wake each other again and again. A number is never given to another client.
   */
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

  /**
   * Whoever may use the database may wake its users: the file gets the same permissions. It has its bytes from the
   * start, so that a full disk does not matter.
   */
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
    writeSync(descriptor, new BigUint64Array(2))
    closeSync(descriptor)
    chmodSync(path, mode)
    return path
  }

  #pathOf(client: number): string {
    return join(this.#folder, String(client))
  }
}
