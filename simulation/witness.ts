/**
 * The witness looks at the server's lines after everything that can change them, and writes down who came in, who was let hold, and who was let go, when.
 * What it writes is the truth that beliefs are held against.
 *
 * It also asks the rule of the line, each time, whether the line is settled: a waiter that could hold and does not has been forgotten by the server.
 */
import type { LineEntry } from '../src/core/engine.ts'
import { heldCount } from '../src/core/line.ts'
import type { Stay } from './history.ts'
import type { World } from './world.ts'

interface Watched {
  readonly stay: Stay
  /** On the server's clock. */
  expiresAt: number
}

export class Witness {
  readonly #world: World
  readonly #lines = new Map<string, Map<bigint, Watched>>()
  #jumpedAt = Number.NEGATIVE_INFINITY

  constructor(world: World) {
    this.#world = world
  }

  /** Who is in the line, for whoever wants to strike there. */
  stays(key: string): readonly Stay[] {
    return [...(this.#lines.get(key)?.values() ?? [])].map(({ stay }) => stay)
  }

  /** Whether the entry of this id holds, as far as anybody has looked. */
  holds(key: string, id: string): boolean {
    for (const { stay } of this.#lines.get(key)?.values() ?? []) if (stay.id === id && stay.grantedAt !== undefined) return true
    return false
  }

  /** Something happened to these lines. `left`: the ids that asked to go; `evicted`: the token that was thrown out. */
  looks(keys: ReadonlySet<string>, left?: ReadonlySet<string>, evicted?: bigint): void {
    for (const key of keys) this.#look(key, left, evicted)
    // Whoever asks the server for anything makes it see, in every line, what has expired.
    const { nowMs } = this.#world.server
    for (const [key, line] of this.#lines) if (!keys.has(key) && anyExpired(line, nowMs)) this.#look(key, undefined, undefined)
  }

  looksAround(): void {
    this.looks(new Set(this.#lines.keys()))
  }

  /** The server has lost its memory. */
  forgotten(): void {
    for (const line of this.#lines.values()) {
      for (const { stay } of line.values()) this.#ends(stay, this.#world.now, 'forgotten')
      line.clear()
    }
  }

  /** The server's clock is about to be set: expiries counted back on it would come out wrong. */
  jumps(): void {
    this.#jumpedAt = this.#world.now
  }

  #look(key: string, left: ReadonlySet<string> | undefined, evicted: bigint | undefined): void {
    const { server, now } = this.#world
    const { entries } = server.lines.inspect(key)
    const line = this.#lines.get(key) ?? new Map<bigint, Watched>()
    this.#lines.set(key, line)
    const present = new Set<bigint>()
    for (const entry of entries) {
      const token = entry.token as bigint
      present.add(token)
      const watched = line.get(token) ?? this.#enters(key, entry, line)
      watched.expiresAt = server.nowMs + entry.remainingMs
      if (entry.state === 'held' && watched.stay.grantedAt === undefined) this.#holds(watched.stay)
    }
    for (const [token, { stay, expiresAt }] of line) {
      if (present.has(token)) continue
      line.delete(token)
      if (left?.has(stay.id)) this.#ends(stay, now, 'left')
      else if (token === evicted) this.#ends(stay, now, 'evicted')
      else this.#ends(stay, Math.min(now, Math.max(this.#jumpedAt, now - (server.nowMs - expiresAt) / server.rate)), 'expired')
    }
    this.#mustBeSettled(key, entries)
  }

  #enters(key: string, entry: LineEntry, line: Map<bigint, Watched>): Watched {
    const { id, weight, limit } = entry
    const token = entry.token as bigint
    const process = Number.parseInt(id.slice(1), 10)
    const stay: Stay = {
      key,
      id,
      process,
      token,
      weight,
      limit,
      enteredAt: this.#world.now,
      grantedAt: undefined,
      goneAt: undefined,
      why: undefined,
    }
    this.#world.history.stays.push(stay)
    if (this.#world.logging) this.#world.log('server', `${key}: ${id} enters, token ${token}`)
    const watched = { stay, expiresAt: 0 }
    line.set(token, watched)
    return watched
  }

  #holds(stay: Stay): void {
    stay.grantedAt = this.#world.now
    if (this.#world.logging) this.#world.log('server', `${stay.key}: ${stay.id} holds`)
  }

  #ends(stay: Stay, at: number, why: NonNullable<Stay['why']>): void {
    stay.goneAt = at
    stay.why = why
    if (this.#world.logging)
      this.#world.log('server', `${stay.key}: ${stay.id} is gone (${why}${at < this.#world.now ? `, since ${at.toFixed(3)}` : ''})`)
  }

  #mustBeSettled(key: string, entries: readonly LineEntry[]): void {
    const held = entries.filter(({ state }) => state === 'held').length
    const may = heldCount(entries)
    if (held === may) return
    const line = entries.map(({ id, state, weight, limit }) => `${id} ${state} ${weight}/${limit}`).join(', ')
    this.#world.mishap('unsettled line', `${held} of the ${may} who could hold '${key}' do: ${line}`)
  }
}

function anyExpired(line: ReadonlyMap<bigint, Watched>, nowMs: number): boolean {
  for (const { expiresAt } of line.values()) if (expiresAt <= nowMs) return true
  return false
}
