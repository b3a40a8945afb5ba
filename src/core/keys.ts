/** Keys: what may be one, and their one order. */

const LONGEST_BYTES = 512
const LONGEST_HOLDER_BYTES = 512

/** Throws unless `key` is 1 to 512 bytes of well-formed UTF-8 without NUL. */
export function checkKey(key: string): void {
  if (typeof key !== 'string') throw new TypeError(`a key must be a string; got ${typeof key}`)
  if (key === '') throw new RangeError('a key must not be empty')
  if (key.includes('\0')) throw new RangeError(`a key must not contain NUL: ${JSON.stringify(key)}`)
  // A lone surrogate has no UTF-8: engines would each store something else.
  if (!key.isWellFormed()) throw new RangeError(`a key must be well-formed Unicode: ${JSON.stringify(key)}`)
  // No code unit of UTF-16 has more than 3 bytes.
  const bytes = 3 * key.length > LONGEST_BYTES ? Buffer.byteLength(key) : 0
  if (bytes > LONGEST_BYTES)
    throw new RangeError(`a key must have at most ${LONGEST_BYTES} bytes of UTF-8; got ${bytes}`)
}

/** Throws unless `holder` is a name that every server can store. */
export function checkHolder(holder: string): void {
  if (typeof holder !== 'string') throw new TypeError(`holder must be a string; got ${typeof holder}`)
  // A server would refuse such a text, again and again.
  if (holder.includes('\0') || !holder.isWellFormed())
    throw new RangeError(`holder must be well-formed Unicode without NUL: ${JSON.stringify(holder)}`)
  const bytes = Buffer.byteLength(holder)
  if (bytes > LONGEST_HOLDER_BYTES)
    throw new RangeError(`holder must have at most ${LONGEST_HOLDER_BYTES} bytes of UTF-8; got ${bytes}`)
}

/**
 * Bytewise order of UTF-8, which is the order of code points. JavaScript's own `<` compares UTF-16 and differs beyond
 * U+FFFF.
 */
export function compareKeys(a: string, b: string): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b))
}
