/**
 * The entries that this engine object has in lines, as far as it knows: under which lease each lives, what it is called
 * in etcd, and when the core last asked for it.
 *
 * An entry that entered an empty line is called by the id of this engine object, and not by its own (names.ts). So a
 * request that deletes an entry by that name, and arrives late, could delete the next entry of the same name. Wherever
 * that is possible, this engine object takes a new id for its next entries.
 */
import { type Chance, type Clock, systemChance } from '../../core/clock.ts'
import type { EtcdLease, EtcdLeases } from './leases.ts'

export interface EtcdOwnEntry {
  readonly key: string
  readonly id: string
  /** The last part of its key in etcd: see names.ts. */
  readonly name: string
  /**
   * Another entry may have this name by the time a request arrives: it is not the present id of this engine object. So
   * the entry is never deleted by this name alone.
   */
  readonly nameMayBeReused: boolean
  readonly token: bigint
  lease: EtcdLease
  ttlMs: number
  /** An entry that holds goes on holding as long as it is there. */
  held: boolean
  /** When the core last entered or renewed it. */
  requestedAt: number
}

export class EtcdOwnEntries {
  readonly #leases: EtcdLeases
  readonly #clock: Clock
  readonly #byId = new Map<string, EtcdOwnEntry>()
  /** By the key of its line: the entry there that is called by the id of an engine object. */
  readonly #namedByEngine = new Map<string, EtcdOwnEntry>()
  /** The ids of entries whose enter is under way. */
  readonly #entering = new Set<string>()
  /** The ids of entries whose leave is under way. */
  readonly #leaving = new Set<string>()
  /** The ids of entries with an enter of unknown outcome. */
  readonly #doubtful = new Set<string>()
  readonly #chance: Chance
  #engineId: string

  constructor(leases: EtcdLeases, clock: Clock, chance: Chance = systemChance) {
    this.#leases = leases
    this.#clock = clock
    this.#chance = chance
    this.#engineId = chance.id()
  }

  /**
   * What an entry is to be called if its line is empty: the id of this engine object, unless an entry of ours in that
   * line is called so already. An entry whose enter is repeated is called by its own id: should the first request still
   * arrive, it finds the entry there.
   */
  nameFor(key: string, id: string): string {
    return this.#namedByEngine.has(key) || this.#doubtful.has(id) ? id : this.#engineId
  }

  /**
   * A request was given up, and may arrive at any time. From now on this engine object has another id, so that the late
   * request cannot concern later entries.
   */
  changeEngineId(): void {
    this.#engineId = this.#chance.id()
  }

  /** The enter of that entry was given up: the entry may be in its line, or come into it at any time. */
  doubtEnter(id: string): void {
    this.changeEngineId()
    this.#doubtful.add(id)
  }

  /** An enter is about to be sent. If one of the same id is under way, the core has given that one up. */
  beginEntering(id: string): void {
    if (this.#entering.has(id)) this.doubtEnter(id)
    else this.#entering.add(id)
  }

  endEntering(id: string): void {
    this.#entering.delete(id)
  }

  /**
   * A leave is about to be sent. It deletes the entry that has the name when it arrives. If an enter or another leave
   * of the same id is under way, the name may be free by then, and in use again.
   */
  beginLeaving(id: string): void {
    if (this.#entering.has(id)) this.doubtEnter(id)
    if (this.#leaving.has(id)) this.changeEngineId()
    else this.#leaving.add(id)
  }

  /** The leave was answered, or has failed. */
  endLeaving(id: string): void {
    this.#leaving.delete(id)
    this.forget(id)
  }

  get(id: string): EtcdOwnEntry | undefined {
    return this.#byId.get(id)
  }

  /** By what the user has in a lease. Tokens of different lines may be equal. */
  find(key: string, token: bigint): EtcdOwnEntry | undefined {
    // One by one: this is called seldom, and an index would have to be kept at every acquire.
    for (const entry of this.#byId.values()) if (entry.token === token && entry.key === key) return entry
    return undefined
  }

  /** The server has answered that this entry is in its line, under this lease. */
  record(found: Omit<EtcdOwnEntry, 'nameMayBeReused' | 'requestedAt'>): EtcdOwnEntry {
    const known = this.#byId.get(found.id)
    const requestedAt = this.#clock.now()
    this.#leases.assign(found.id, found.lease)
    if (known?.token === found.token) {
      const held = known.held || found.held
      return Object.assign(known, found, { held, requestedAt })
    }
    if (known !== undefined) this.#remove(known)
    // A name belongs to one entry at a time. Of two, the one with the smaller token has gone.
    const other = this.#namedByEngine.get(found.key)
    const isOlder = other?.name === found.name && other.token > found.token
    if (other?.name === found.name && !isOlder) this.#remove(other)
    const { key, id, name, token, lease, ttlMs, held } = found
    const nameMayBeReused = isOlder || (name !== id && name !== this.#engineId)
    const entry: EtcdOwnEntry = { key, id, name, nameMayBeReused, token, lease, ttlMs, held, requestedAt }
    this.#byId.set(id, entry)
    if (name !== id && !isOlder) this.#namedByEngine.set(key, entry)
    return entry
  }

  /** The entry is in no line, or lives on without this engine object. */
  forget(id: string): void {
    const entry = this.#byId.get(id)
    if (entry !== undefined) this.#remove(entry)
    // Its leave is still under way, and may arrive when another entry has its name.
    if (this.#leaving.has(id)) this.changeEngineId()
    this.#doubtful.delete(id)
    this.#leases.assign(id)
  }

  /**
   * The entries under this lease that the core has not asked for in a whole ttl: it has given them up without a leave.
   * They are looked for once in a third of the ttl.
   */
  abandoned(lease: EtcdLease): readonly EtcdOwnEntry[] {
    const now = this.#clock.now()
    if (now - lease.sweptAt < lease.ttlMs / 3) return []
    lease.sweptAt = now
    const found: EtcdOwnEntry[] = []
    for (const id of lease.entryIds) {
      const entry = this.#byId.get(id)
      if (entry !== undefined && now - entry.requestedAt > Math.max(entry.ttlMs, lease.ttlMs)) found.push(entry)
    }
    return found
  }

  #remove(entry: EtcdOwnEntry): void {
    this.#byId.delete(entry.id)
    if (this.#namedByEngine.get(entry.key) === entry) this.#namedByEngine.delete(entry.key)
  }
}
