/**
 * The witness looks at the server's lines after everything that can change them, and writes down who came in, who was
 * let hold, and who was let go, when. What it writes is the truth that beliefs are held against.
 *
 * It also asks the rule of the line, each time, whether the line is settled: a waiter that could hold and does not has
 * been forgotten by the server.
 */
import type { LineEntry } from '../src/core/engine.ts'
import { heldCount } from '../src/core/line.ts'
import type { Stay } from './history.ts'
import type { World } from './world.ts'

/** What a call names: a key, and the entry that it enters, renews or takes out. */
interface CalledItem {
  readonly key: string
  readonly id?: string
  readonly ttlMs?: number
}

/** Sums of fractions come out a little different each time. */
const ROUNDING_MS = 1e-3
/** For how much of its ttl an enter is expected to arrive, at least: the clock of its process may run fast. */
const EXPECTED_SHARE = 0.98

interface Watched {
  readonly stay: Stay
  /** On the server's clock. */
  expiresAt: number
}

export class Witness {
  readonly #world: World
  readonly #lines = new Map<string, Map<bigint, Watched>>()
  /** What happens now comes from a duplicated request. */
  echo = false
  /** When the request was sent that arrives now. */
  sentAt: number = Number.POSITIVE_INFINITY
  #jumpedAt = Number.NEGATIVE_INFINITY

  constructor(world: World) {
    this.#world = world
    for (const key of world.keys) this.#lines.set(key, new Map())
  }

  /** Which entries are in the line. */
  stays(key: string): readonly Stay[] {
    return [...(this.#lines.get(key)?.values() ?? [])].map(({ stay }) => stay)
  }

  /** Whether the entry of this id holds, as far as the witness has looked. */
  holds(key: string, id: string): boolean {
    for (const { stay } of this.#lines.get(key)?.values() ?? [])
      if (stay.id === id && stay.grantedAt !== undefined) return true
    return false
  }

  /**
   * Something happened to the lines of these keys. `left`: who asked to go; `evicted`: the token that was thrown out.
   */
  looks(called: readonly CalledItem[], left?: readonly CalledItem[], evicted?: bigint): void {
    const { nowMs } = this.#world.server
    for (const [key, line] of this.#lines) {
      // Every call makes the server see, in every line, what has expired.
      if (called.some((item) => item.key === key) || anyExpired(line, nowMs))
        this.#look(key, line, called, left, evicted)
    }
  }

  looksAround(): void {
    this.looks(this.#world.keys.map((key) => ({ key })))
  }

  /** It is to be renewed no more. */
  condemns(key: string, token: bigint): void {
    const watched = this.#lines.get(key)?.get(token)
    if (watched !== undefined) watched.stay.condemned = true
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

  #look(
    key: string,
    line: Map<bigint, Watched>,
    called: readonly CalledItem[],
    left: readonly CalledItem[] | undefined,
    evicted: bigint | undefined,
  ): void {
    const { server, now } = this.#world
    const { entries } = server.lines.inspect(key)
    for (const entry of entries) {
      const watched = line.get(entry.token as bigint) ?? this.#enters(key, entry, line)
      this.#mustNotMove(watched, server.nowMs + entry.remainingMs, called)
      if (entry.state === 'held' && watched.stay.grantedAt === undefined) this.#holds(watched.stay)
    }
    if (line.size > entries.length) {
      for (const { stay, expiresAt } of line.values()) {
        const { token } = stay
        if (entries.some((entry) => entry.token === token)) continue
        line.delete(token)
        if (left?.some(({ id }) => id === stay.id)) this.#ends(stay, now, 'left')
        else if (token === evicted) this.#ends(stay, now, 'evicted')
        else
          this.#ends(
            stay,
            Math.min(now, Math.max(this.#jumpedAt, now - (server.nowMs - expiresAt) / server.rate)),
            'expired',
          )
      }
    }
    this.#mustBeSettled(key, entries)
  }

  /** Nothing but its own enter or renewal moves an entry's expiry, and nothing does once it has passed. */
  #mustNotMove(watched: Watched, expiresAt: number, called: readonly CalledItem[]): void {
    const { server } = this.#world
    const { stay, expiresAt: before } = watched
    watched.expiresAt = expiresAt
    const renewedTo = called.find(({ id }) => id === stay.id)?.ttlMs
    if (renewedTo !== undefined && expiresAt < server.nowMs + renewedTo - ROUNDING_MS && !stay.condemned) {
      this.#world.mishap(
        'expiry moved',
        `${stay.id} in '${stay.key}' was entered or renewed, and its expiry did not move`,
      )
    }
    if (before === 0 || Math.abs(expiresAt - before) < ROUNDING_MS) return
    if (before <= server.nowMs)
      this.#world.mishap('resurrection', `${stay.id} had expired in '${stay.key}', and lives on`)
    if (called.some(({ id }) => id === stay.id)) return
    this.#world.mishap(
      'expiry moved',
      `the expiry of ${stay.id} in '${stay.key}' moved by ${(expiresAt - before).toFixed(1)} ms, and no process renewed it`,
    )
  }

  #enters(key: string, entry: LineEntry, line: Map<bigint, Watched>): Watched {
    const { id, weight, limit, ttlMs } = entry
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
      echo: this.echo,
      late: this.#world.now - this.sentAt > ttlMs * EXPECTED_SHARE,
      condemned: false,
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
      this.#world.log(
        'server',
        `${stay.key}: ${stay.id} is gone (${why}${at < this.#world.now ? `, since ${at.toFixed(3)}` : ''})`,
      )
  }

  #mustBeSettled(key: string, entries: readonly LineEntry[]): void {
    const may = heldCount(entries)
    let held = 0
    for (const { state } of entries) if (state === 'held') held += 1
    if (held === may) return
    const line = entries.map(({ id, state, weight, limit }) => `${id} ${state} ${weight}/${limit}`).join(', ')
    this.#world.mishap('unsettled line', `${held} of the ${may} who could hold '${key}' do: ${line}`)
  }
}

function anyExpired(line: ReadonlyMap<bigint, Watched>, nowMs: number): boolean {
  for (const { expiresAt } of line.values()) if (expiresAt <= nowMs) return true
  return false
}
