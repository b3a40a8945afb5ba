/**
 * The entries that this engine object has in lines, as far as it knows: under which lease each lives, and when it was
 * last asked for.
 */
import { type Chance, type Clock, systemChance } from '../../core/clock.ts'
import type { ClassLease, ClassLeases } from './class-lease.ts'

export interface Mine {
  readonly key: string
  readonly id: string
  /** What it is called in its line: see names.ts. */
  readonly name: string
  /**
   * It is called by a name that is not ours any more, or not ours at all: something else may be called so in the next
   * moment.
   */
  readonly foreign: boolean
  readonly token: bigint
  lease: ClassLease
  ttlMs: number
  /** Whoever holds goes on holding as long as its entry is there. */
  held: boolean
  askedAt: number
}

export class Entries {
  readonly #leases: ClassLeases
  readonly #clock: Clock
  readonly #byId = new Map<string, Mine>()
  /** Those under our name, by their line. */
  readonly #alone = new Map<string, Mine>()
  readonly #entering = new Set<string>()
  readonly #leaving = new Set<string>()
  readonly #doubtful = new Set<string>()
  readonly #chance: Chance
  #ownName: string

  constructor(leases: ClassLeases, clock: Clock, chance: Chance = systemChance) {
    this.#leases = leases
    this.#clock = clock
    this.#chance = chance
    this.#ownName = chance.id()
  }

  /**
   * What it is to be called if its line is empty: by our name, if none of ours is called so there, as far as we know.
   * One that was asked for before goes by its id, so that the first request, should it still arrive, finds it there.
   */
  nameFor(key: string, id: string): string {
    return this.#alone.has(key) || this.#doubtful.has(id) ? id : this.#ownName
  }

  /**
   * Nobody knows what has become of requests about these. Others get another name from now on, so that those requests
   * cannot concern them.
   */
  doubt(ids: readonly string[]): void {
    this.#ownName = this.#chance.id()
    for (const id of ids) this.#doubtful.add(id)
  }

  /**
   * An enter is about to be sent. If there is one already, its owner waits for that no more, and nobody knows when it
   * arrives.
   */
  beginEntering(id: string): void {
    if (this.#entering.has(id)) this.doubt([id])
    else this.#entering.add(id)
  }

  endEntering(id: string): void {
    this.#entering.delete(id)
  }

  /**
   * A leave is about to be sent: what is called as it is goes, whoever that may be when it arrives. So others get
   * another name if it may arrive after that name is free: because an enter of the same one is still under way, or
   * another leave.
   */
  beginLeaving(id: string): void {
    if (this.#entering.has(id)) this.doubt([id])
    if (this.#leaving.has(id)) this.doubt([])
    else this.#leaving.add(id)
  }

  /** It was answered, or has failed. */
  endLeaving(id: string): void {
    this.#leaving.delete(id)
    this.forget(id)
  }

  get(id: string): Mine | undefined {
    return this.#byId.get(id)
  }

  /** By what its owner has in hand. Tokens of different lines may be equal. */
  find(key: string, token: bigint): Mine | undefined {
    // One by one, since this is asked seldom, and an index would have to be kept at every acquire.
    for (const mine of this.#byId.values()) if (mine.token === token && mine.key === key) return mine
    return undefined
  }

  /** It is in the line, under this lease. */
  note(entry: Omit<Mine, 'foreign' | 'askedAt'>): Mine {
    const known = this.#byId.get(entry.id)
    const askedAt = this.#clock.now()
    this.#leases.settle(entry.id, entry.lease)
    if (known?.token === entry.token) {
      const held = known.held || entry.held
      return Object.assign(known, entry, { held, askedAt })
    }
    if (known !== undefined) this.#drop(known)
    // There is one of a name: whoever was called so before has gone.
    const other = this.#alone.get(entry.key)
    const late = other?.name === entry.name && other.token > entry.token
    if (other?.name === entry.name && !late) this.#drop(other)
    const { key, id, name, token, lease, ttlMs, held } = entry
    const foreign = late || (name !== id && name !== this.#ownName)
    const mine: Mine = { key, id, name, foreign, token, lease, ttlMs, held, askedAt }
    this.#byId.set(id, mine)
    if (name !== id && !late) this.#alone.set(key, mine)
    return mine
  }

  /** It is in no line, or does not depend on us any more. */
  forget(id: string): void {
    const mine = this.#byId.get(id)
    if (mine !== undefined) this.#drop(mine)
    // Its leave is still under way, and may arrive when its name is somebody else's.
    if (this.#leaving.has(id)) this.doubt([])
    this.#doubtful.delete(id)
    this.#leases.settle(id)
  }

  /**
   * Those under this lease whom nobody has asked for in a whole ttl: their owner has given them up. Looked for once in
   * a third of it.
   */
  givenUp(lease: ClassLease): readonly Mine[] {
    const now = this.#clock.now()
    if (now - lease.sweptAt < lease.ttlMs / 3) return []
    lease.sweptAt = now
    const found: Mine[] = []
    for (const id of lease.tenants) {
      const mine = this.#byId.get(id)
      if (mine !== undefined && now - mine.askedAt > Math.max(mine.ttlMs, lease.ttlMs)) found.push(mine)
    }
    return found
  }

  #drop(mine: Mine): void {
    this.#byId.delete(mine.id)
    if (this.#alone.get(mine.key) === mine) this.#alone.delete(mine.key)
  }
}
