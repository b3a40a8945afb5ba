/** What the scripts answer, in the words of the contract. The letters are explained in lua/place.lua. */
import type { Claim, LineEntry, Place, Standing } from '../../core/engine.ts'
import { EngineError, LineFullError } from '../../core/errors.ts'
import { ENGINE, unusable } from './faults.ts'

/** As in lua/enter.lua. */
export const LINE_BOUND = 10_000

/** A waiter, and how long it may be left in peace. */
export interface Patience {
  readonly key: string
  readonly id: string
  readonly ttlMs: number
  /** When to look again, from now, should nothing be heard. */
  readonly lookMs: number
  /** `first` in line; `behind` others; first in line behind a `stranger`, who will not tell us that it has gone. */
  readonly place: 'first' | 'behind' | 'stranger'
}

const PLACES = { w: 'first', q: 'behind', s: 'stranger' } as const

/** Reads the answers to `enter` and `renew`. */
export class Standings {
  readonly #K: (key: string) => string
  readonly #waits: (patience: Patience) => void

  constructor(K: (key: string) => string, waits: (patience: Patience) => void) {
    this.#K = K
    this.#waits = waits
  }

  entered(reply: unknown, claims: readonly Claim[]): Standing[] {
    if (!Array.isArray(reply)) {
      const first = BigInt(String(reply))
      return claims.map(({ ttlMs }, index) => ({ state: 'held', token: first + BigInt(index), heldForMs: ttlMs }))
    }
    const [firstToken, codes] = reply as readonly unknown[]
    const first = BigInt(String(firstToken))
    return this.#read(String(codes), new Extras(reply, 2), claims, first)
  }

  renewed(reply: unknown, places: readonly Place[]): Standing[] {
    const [codes] = reply as readonly unknown[]
    return this.#read(String(codes), new Extras(reply, 1), places, 0n)
  }

  #read(codes: string, extras: Extras, items: readonly Place[], first: bigint): Standing[] {
    if (codes.length !== items.length) throw strange(codes)
    return items.map((item, index): Standing => {
      const code = codes[index]
      if (code === 'h') return { state: 'held', token: first + BigInt(index), heldForMs: item.ttlMs }
      if (code === 'H') return { state: 'held', token: BigInt(extras.next()), heldForMs: item.ttlMs }
      return this.#notHeld(code, item, extras)
    })
  }

  #notHeld(code: string | undefined, { key, id, ttlMs }: Place, extras: Extras): Standing {
    switch (code) {
      case 'w':
      case 'q':
      case 's': {
        const ahead = extras.next()
        this.#waits({ key, id, ttlMs, lookMs: Number(extras.next()), place: PLACES[code] })
        return { state: 'waiting', ahead: ahead === '' ? null : Number(ahead) }
      }
      case 'b':
        return { state: 'busy', ahead: Number(extras.next()) }
      case 'u':
        return { state: 'gone', why: 'unknown' }
      case 'e':
        return { state: 'gone', why: 'evicted' }
      case 'x':
        return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }
      case 'f':
        return { state: 'failed', error: unusable(this.#K(key), extras.next(), extras.next()) }
      default:
        throw strange(code)
    }
  }
}

/** What follows the codes, taken one by one. */
class Extras {
  readonly #reply: readonly unknown[]
  #at: number

  constructor(reply: unknown, from: number) {
    this.#reply = reply as readonly unknown[]
    this.#at = from
  }

  next(): string {
    if (this.#at >= this.#reply.length) throw strange('too few')
    this.#at += 1
    return String(this.#reply[this.#at - 1])
  }
}

/** The answer to `leave`. */
export function departures(reply: unknown, count: number): boolean[] {
  const codes = String(reply)
  if (codes.length !== count) throw strange(codes)
  return codes.split('').map((code) => code === '1')
}

/** The answer to `inspect`. */
export interface Inspected {
  readonly held: number
  readonly waiting: number
  /** Held ones first, each in the order of their tokens. */
  readonly entries: readonly LineEntry[]
}

export function inspected(reply: unknown, K: string): Inspected {
  const [now, fault, detail, held, waiting, ...rows] = (reply as readonly unknown[]).map(String)
  if (fault === 'type' || fault === 'version') throw unusable(K, fault, detail ?? '')
  const entries: LineEntry[] = []
  for (let at = 0; at + 3 < rows.length; at += 4) {
    const [id = '', record = '', remaining, since = ''] = rows.slice(at, at + 4)
    if (id === '') entries.push(strangerEntry(fault === 'forever' ? Number.POSITIVE_INFINITY : Number(remaining)))
    else entries.push(entryOf(id, record, Number(remaining), since === '' ? null : Number(since), Number(now)))
  }
  return { held: Number(held), waiting: Number(waiting), entries: entries.sort(inLineOrder) }
}

function entryOf(id: string, record: string, remainingMs: number, heldMs: number | null, nowMs: number): LineEntry {
  const [, token = '', weight, limit, ttlMs, holder = ''] = /^(\d+) \w (\d+) (\d+) (\d+) \S* (.*)$/s.exec(record) ?? []
  return {
    id,
    holder,
    state: heldMs === null ? 'waiting' : 'held',
    token: BigInt(token),
    weight: Number(weight),
    limit: Number(limit),
    ttlMs: Number(ttlMs),
    remainingMs,
    // A token is the time it was made, in microseconds, unless the clock was set back meanwhile.
    ageMs: Math.max(0, nowMs - Number(token) / 1000),
    heldMs,
  }
}

/** Somebody who takes the key without us. Its value may be a secret, so it is not shown. */
function strangerEntry(remainingMs: number): LineEntry {
  const unknown = { token: null, ageMs: null, heldMs: null }
  return { id: '', holder: 'somebody without Holdfast', state: 'held', weight: 1, limit: 1, ttlMs: remainingMs, remainingMs, ...unknown }
}

function inLineOrder(a: LineEntry, b: LineEntry): number {
  if (a.state !== b.state) return a.state === 'held' ? -1 : 1
  return (a.token ?? 0n) < (b.token ?? 0n) ? -1 : 1
}

/** Not what our scripts say. Whatever it is (a proxy, another script under our name), nobody knows what it did. */
function strange(what: unknown): EngineError {
  return new EngineError(ENGINE, `an answer that makes no sense: ${JSON.stringify(what)}`, { outcome: 'unknown', transient: false })
}
