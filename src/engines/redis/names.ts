/**
 * What things are called in Redis.
 *
 * The lock itself is at K, the user's key behind the prefix, where a hand-written `SET NX PX` would have it. What else
 * a line needs lies in keys that begin with `hf1:`. In Cluster all keys of one line must be in one slot, and the slot
 * is the hash of the first `{tag}` in a name, or of the whole name where there is none:
 *
 *     K                  slot is that of     beside it
 *     order:42           order:42            hf1:entries:{order:42}
 *     {user:7}:cart      user:7              hf1:entries/{user:7}:cart
 *     a}b, {}x, a{b      all of it           hf1:entries{t}a}b     where t is a tag that we know to be of the same slot
 *
 * The three forms differ in the character after the word, so that no two lines ever share a name. Outside Cluster the
 * first form serves for all keys.
 */

/** What the names of our own keys begin with. */
export const RESERVED = 'hf1:'

const SLOTS = 16384
const PARTS = ['entries', 'queue', 'expiries'] as const

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

/** The counter that the tokens of a slot come from. Outside Cluster there is one. */
export function counterKey(slot?: number): string {
  return slot === undefined ? `${RESERVED}counter` : `${RESERVED}counter:{${tagOfSlot(slot)}}`
}

/** The three other keys of the line of K, in Cluster. */
export function siblings(K: string): readonly string[] {
  return PARTS.map((part) => RESERVED + part + suffixOf(K))
}

export function suffixOf(K: string): string {
  if (tagOf(K) !== undefined) return `/${K}`
  return /[{}]/.test(K) ? `{${tagOfSlot(slotOf(K))}}${K}` : `:{${K}}`
}

/**
 * How names are made for a client: in Cluster they are sent, and get the client's own prefix; elsewhere the scripts
 * make them.
 */
export interface Naming {
  readonly cluster: boolean
  /** What the client itself puts before every key that is sent. */
  readonly keyPrefix: string
}

/** From a user's key to K and back. */
export class Names {
  /** Any keys can go in one call. */
  readonly together: boolean
  readonly #cluster: boolean
  readonly #prefix: string
  /** What K begins with, as the server has it. */
  readonly #begin: string
  /** Some keys would make K look like a key of our own. */
  readonly #risky: boolean

  constructor({ cluster, keyPrefix }: Naming, prefix: string) {
    this.#cluster = cluster
    this.#prefix = prefix
    this.#begin = keyPrefix + prefix
    this.#risky = [prefix, this.#begin].some((begin) => RESERVED.startsWith(begin.slice(0, RESERVED.length)))
    this.together = !cluster && !this.#risky
  }

  /** K as the server has it. */
  K(key: string): string {
    return this.#begin + key
  }

  keyOf(K: string): string {
    return K.slice(this.#begin.length)
  }

  /** K as it is sent where it is declared. */
  sent(key: string): string {
    return this.#prefix + key
  }

  /** Whether K, as we send it or as the server has it, could be taken for a key of our own. */
  refuses(key: string): boolean {
    return this.#risky && (this.sent(key).startsWith(RESERVED) || this.K(key).startsWith(RESERVED))
  }

  /** Undefined outside Cluster. */
  slot(key: string): number | undefined {
    return this.#cluster ? slotOf(this.K(key)) : undefined
  }

  /**
   * The list of K for lua/keys.lua. In Cluster, where it is empty, the keys are added to `words`, and their number is
   * raised.
   */
  list(items: readonly { readonly key: string }[], words: string[]): string {
    if (this.#cluster) {
      for (const { key } of items) words.push(this.sent(key), ...siblings(this.K(key)))
      words[1] = String(words.length - 2)
      return ''
    }
    let Ks = this.K(items[0]?.key ?? '')
    for (let at = 1; at < items.length; at += 1) Ks += `\0${this.#begin}${items[at]?.key}`
    return Ks
  }
}

/** K, if `name` is that of a line's entries. */
export function lineOfEntries(name: string, { cluster, keyPrefix }: Naming): string | undefined {
  const own = cluster ? name.slice(keyPrefix.length) : name
  const found = /^hf1:entries(?::\{(.*)\}|\/(.*)|\{[0-9a-z]+\}(.*))$/s.exec(own)
  return found?.[1] ?? found?.[2] ?? found?.[3]
}

/** Patterns for SCAN that find the entries of lines whose K begins with `prefix`. */
export function entriesPatterns(prefix: string, { cluster, keyPrefix }: Naming): readonly string[] {
  const rest = `${globEscape(prefix)}*`
  if (!cluster) return [`hf1:entries:{${rest}`]
  return [':{', '/', '{*}'].map((form) => `${globEscape(keyPrefix)}hf1:entries${form}${rest}`)
}

/** So that SCAN's MATCH takes every character for itself. */
export function globEscape(text: string): string {
  return text.replaceAll(/[\\*?[\]]/g, '\\$&')
}
