/**
 * What keys are called in Redis, for all who keep something of ours there.
 *
 * A lock is at its server key: the user's key behind the prefix of the engine, where a hand-written `SET NX PX` would
 * have it. What is kept beside it has names that begin with `hf1:`. In Cluster everything that belongs together must be
 * in one slot, and the slot is the hash of the first `{tag}` in a name, or of the whole name where there is none. So a
 * name of ours is a word and a suffix, which is made of the name that it belongs to:
 *
 *     belongs to         slot is that of     suffix             for example
 *     order:42           order:42            :{order:42}        hf1:entries:{order:42}
 *     {user:7}:cart      user:7              /{user:7}:cart     hf1:entries/{user:7}:cart
 *     a}b, {}x, a{b      all of it           {t}a}b             hf1:entries{t}a}b
 *
 * where t is some tag of the same slot. The three forms differ in the character after the word, so that no two names
 * ever have the same suffix.
 */
import { EngineError } from '../../core/errors.ts'

/** What comes before every key of users, unless they say something else. */
export const DEFAULT_PREFIX = 'lock:'

/** What the names of our own keys begin with. */
export const RESERVED = 'hf1:'

const SLOTS = 16384

/** CRC-16/XMODEM, as Redis Cluster uses it. */
const CRC_TABLE: Uint16Array = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  return crc & 0xffff
})

function crc16(text: string): number {
  let crc = 0
  for (const byte of Buffer.from(text)) crc = ((crc << 8) & 0xffff) ^ (CRC_TABLE[(crc >> 8) ^ byte] as number)
  return crc
}

/** What of a name is hashed: the first non-empty tag after the first `{`, or undefined for all of it. */
function tagOf(name: string): string | undefined {
  const open = name.indexOf('{')
  if (open < 0) return undefined
  const close = name.indexOf('}', open + 1)
  return close <= open + 1 ? undefined : name.slice(open + 1, close)
}

export function slotOf(name: string): number {
  return crc16(tagOf(name) ?? name) % SLOTS
}

const slotTags = new Map<number, string>()
let tagsTried = 0

/**
 * A short tag of that slot. Found by trying, and remembered: all of them together take a few hundredths of a second.
 */
export function tagOfSlot(slot: number): string {
  for (;;) {
    const known = slotTags.get(slot)
    if (known !== undefined) return known
    const tag = tagsTried.toString(36)
    tagsTried += 1
    const found = crc16(tag) % SLOTS
    if (!slotTags.has(found)) slotTags.set(found, tag)
  }
}

/** What follows the word in the name of a key that belongs to `name`: it keeps the key in the slot of `name`. */
export function suffixOf(name: string): string {
  if (tagOf(name) !== undefined) return `/${name}`
  return /[{}]/.test(name) ? `{${tagOfSlot(slotOf(name))}}${name}` : `:{${name}}`
}

/** The inverse of `suffixOf`; undefined for a text that is no suffix. */
export function nameOfSuffix(suffix: string): string | undefined {
  const found = /^(?::\{(.*)\}|\/(.*)|\{[0-9a-z]+\}(.*))$/s.exec(suffix)
  return found?.[1] ?? found?.[2] ?? found?.[3]
}

/** So that SCAN's MATCH takes every character for itself. */
export function globEscape(text: string): string {
  return text.replaceAll(/[\\*?[\]]/g, '\\$&')
}

/** Throws unless `prefix` can stand before every key. */
export function checkPrefix(prefix: string): void {
  if (typeof prefix !== 'string' || prefix.includes('\0') || !prefix.isWellFormed())
    throw new TypeError(`prefix must be a string of well-formed Unicode without NUL; got ${JSON.stringify(prefix)}`)
  if (prefix.startsWith(RESERVED)) throw new RangeError(`prefix must not begin with '${RESERVED}': our own keys do`)
}

/** A lock of that name could not be told from what we keep beside our locks. */
export function reservedKey(engine: string, serverKey: string): EngineError {
  const message = `'${serverKey}' begins like the names of Holdfast's own keys: use a prefix (the usual one is '${DEFAULT_PREFIX}'), or another key`
  return new EngineError(engine, message, { outcome: 'not-applied', transient: false })
}

/** What about a client decides how names are made: a wire has it. */
export interface Naming {
  /** Keys have to be declared, and then the client's own prefix comes before them. */
  readonly cluster: boolean
  /** What the client itself puts before every key that is declared. */
  readonly keyPrefix: string
}

/** From a user's key to the server key and back. */
export class RedisNames {
  /** Any keys can go in one call. */
  readonly together: boolean
  readonly cluster: boolean
  readonly #prefix: string
  /** What server keys begin with. */
  readonly #begin: string
  /** With some keys, the server key would look like a key of our own. */
  readonly #risky: boolean

  constructor({ cluster, keyPrefix }: Naming, prefix: string) {
    this.cluster = cluster
    this.#prefix = prefix
    this.#begin = keyPrefix + prefix
    this.#risky = [prefix, this.#begin].some((begin) => RESERVED.startsWith(begin.slice(0, RESERVED.length)))
    this.together = !cluster && !this.#risky
  }

  /** The name of the lock, as the server has it. */
  serverKey(key: string): string {
    return this.#begin + key
  }

  userKey(serverKey: string): string {
    return serverKey.slice(this.#begin.length)
  }

  /** The name of the lock as it is sent where it is declared: the client adds its own prefix. */
  declaredKey(key: string): string {
    return this.#prefix + key
  }

  /** Whether the name of the lock, as we send it or as the server has it, could be taken for a key of our own. */
  refuses(key: string): boolean {
    return this.#risky && (this.declaredKey(key).startsWith(RESERVED) || this.serverKey(key).startsWith(RESERVED))
  }

  /** Undefined outside Cluster. */
  slot(key: string): number | undefined {
    return this.cluster ? slotOf(this.serverKey(key)) : undefined
  }
}
