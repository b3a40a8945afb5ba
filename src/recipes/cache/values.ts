/**
 * A key-value store of the user's for the values: it has to get and set. It needs no condition, no lock and no order
 * of its own, for it decides nothing.
 *
 * What is stored there carries the id of the fill that has made it. The record in the engine's store says which fill
 * counts. A value of any other fill is nothing: one that was invalidated, one that a paused process has written late,
 * one that an older replica has answered. So an invalidation need not even reach the key-value store.
 */
import { systemClock } from '../../core/clock.ts'

/** Where values are kept. Errors of its own are told to the caller, or are an outage (`outage: 'fill'`). */
export interface ValueStore {
  get(key: string): Promise<Uint8Array | string | null | undefined>
  /** `ttlMs`: a whole number. What is forgotten earlier is made again. */
  set(key: string, value: Uint8Array, ttlMs: number): Promise<unknown>
}

/** What is used of a client of ioredis. */
export interface RedisValuesClient {
  getBuffer(key: string): Promise<Uint8Array | null>
  set(key: string, value: Buffer, unit: 'PX', ms: number): Promise<unknown>
}

/** Values in Redis, by a client of ioredis: of a server that may evict them, for example. */
export function ioredisValues(client: RedisValuesClient): ValueStore {
  return {
    get: (key) => client.getBuffer(key),
    set: (key, value, ttlMs) => client.set(key, Buffer.from(value), 'PX', ttlMs),
  }
}

/** More than one: else the look would never come to the end of a Map that grows. */
const LOOKS = 2

/** Values in a Map: for tests, and for a program that is one process. Other processes would not find them. */
export function mapValues(map: Map<string, { value: Uint8Array; until: number }> = new Map()): ValueStore {
  let looking = map.entries()
  return {
    async get(key) {
      const found = map.get(key)
      if (found === undefined || found.until > systemClock.now()) return found?.value
      map.delete(key)
      return undefined
    },
    async set(key, value, ttlMs) {
      const now = systemClock.now()
      map.set(key, { value, until: now + ttlMs })
      // Each new value has two old ones looked at, which go if they are over: so the look keeps ahead of the growth.
      for (let looks = 0; looks < LOOKS; looks += 1) {
        const { value: entry, done } = looking.next()
        if (done === true) looking = map.entries()
        else if (entry[1].until <= now) map.delete(entry[0])
      }
    },
  }
}

const LABEL_END = Buffer.from('\n')

/** A name that no line and no record has: on Redis, a line is kept under its own key. */
export function valueKeyOf(recordKey: string): string {
  return `holdfast:value:${recordKey}`
}

/** The bytes, with the fill that has made them. */
export function labelled(by: string, bytes: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from(by), LABEL_END, bytes])
}

/** The bytes that this fill has made; undefined if it was another one, or there is nothing. */
export function bytesOf(by: string, stored: Uint8Array | string | null | undefined): Uint8Array | undefined {
  if (stored === null || stored === undefined) return undefined
  const all =
    typeof stored === 'string' ? Buffer.from(stored) : Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength)
  const label = Buffer.from(`${by}\n`)
  return all.subarray(0, label.length).equals(label) ? all.subarray(label.length) : undefined
}
