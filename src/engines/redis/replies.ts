/** What the scripts answer, in the words of the contract. The letters are explained in lua/place.lua. */

import { ENGINE } from '../../clients/redis/errors.ts'
import type { Claim, LineEntry, Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import type { Recheck } from '../shared/recheck-timer.ts'
import { isWaiting, settledStanding, waitingStanding } from '../shared/standing-codes.ts'
import { unusable } from './errors.ts'

/** As in lua/enter.lua. */
export const LINE_BOUND = 10_000

/** Who wants to know what the answers say beside the standings. */
export interface Interested {
  /** It waits. */
  waits(recheck: Recheck): void
  /** It does not, or not any more. */
  waitsNot(id: string): void
  /** At K is a string of a stranger that never expires. */
  endless(error: EngineError): void
}

/** Reads the answers to `enter` and `renew`. */
export class Standings {
  readonly #K: (key: string) => string
  readonly #interested: Interested

  constructor(K: (key: string) => string, interested: Interested) {
    this.#K = K
    this.#interested = interested
  }

  entered(reply: unknown, claims: readonly Claim[]): Standing[] {
    if (Array.isArray(reply)) return this.#read(String(reply[1]), new Extras(reply, 2), claims, Number(reply[0]))
    const first = Number(reply)
    const standings: Standing[] = []
    for (const { id, ttlMs } of claims) {
      this.#interested.waitsNot(id)
      standings.push(held(first + standings.length, ttlMs))
    }
    return standings
  }

  renewed(reply: unknown, places: readonly Place[]): Standing[] {
    const [codes] = reply as readonly unknown[]
    return this.#read(String(codes), new Extras(reply, 1), places, 0)
  }

  #read(codes: string, extras: Extras, items: readonly Place[], first: number): Standing[] {
    if (codes.length !== items.length) throw strange(codes)
    return items.map((item, index): Standing => {
      const code = codes[index]
      if (isWaiting(code)) {
        const ahead = extras.next()
        return waitingStanding(code, item, ahead, Number(extras.next()), this.#interested.waits)
      }
      this.#interested.waitsNot(item.id)
      if (code === 'h') return held(first + index, item.ttlMs)
      if (code === 'H') return held(Number(extras.next()), item.ttlMs)
      return this.#neither(code, item.key, extras)
    })
  }

  #neither(code: string | undefined, key: string, extras: Extras): Standing {
    if (code === 'x') return { state: 'failed', error: this.#unusable(key, extras.next(), extras.next()) }
    const settled = settledStanding(code, key, () => extras.next(), LINE_BOUND)
    if (settled === undefined) throw strange(code)
    return settled
  }

  #unusable(key: string, kind: string, detail: string): EngineError {
    const error = unusable(this.#K(key), kind, detail)
    if (kind === 'forever') this.#interested.endless(error)
    return error
  }
}

/** A token is a time in microseconds: a number has it exactly for another two centuries. */
function held(token: number, heldForMs: number): Standing {
  if (!Number.isSafeInteger(token)) throw strange(token)
  return { state: 'held', token: BigInt(token), heldForMs }
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
  const were: boolean[] = []
  for (let at = 0; at < count; at += 1) were.push(codes[at] === '1')
  return were
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
  return {
    id: '',
    holder: 'somebody without Holdfast',
    state: 'held',
    weight: 1,
    limit: 1,
    ttlMs: remainingMs,
    remainingMs,
    ...unknown,
  }
}

function inLineOrder(a: LineEntry, b: LineEntry): number {
  if (a.state !== b.state) return a.state === 'held' ? -1 : 1
  return (a.token ?? 0n) < (b.token ?? 0n) ? -1 : 1
}

/** Not what our scripts say. Whatever it is (a proxy, another script under our name), nobody knows what it did. */
function strange(what: unknown): EngineError {
  return new EngineError(ENGINE, `an answer that makes no sense: ${JSON.stringify(what)}`, {
    outcome: 'unknown',
    transient: false,
  })
}
