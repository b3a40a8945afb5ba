/** From values to bytes and back: JSON, unless the user gives something else. */

/** How a recipe stores what the work has answered: the option `serialize` of recipes. */
export interface Serializer {
  /** Throws, or answers the bytes (a string is stored as UTF-8). */
  encode(value: unknown): Uint8Array | string
  decode(bytes: Uint8Array): unknown
}

/** JSON. `undefined` is a value as well: work that answers nothing has answered. It is stored as nothing at all. */
export const jsonSerializer: Serializer = {
  encode(value) {
    if (value === undefined) return ''
    const text = JSON.stringify(value) as string | undefined
    if (text === undefined) throw new TypeError(`JSON has no word for a ${typeof value}`)
    return text
  },
  decode: ({ buffer, byteOffset, length }) =>
    length === 0 ? undefined : JSON.parse(Buffer.from(buffer, byteOffset, length).toString()),
}

/** The bytes of a value; throws a `TypeError` or a `RangeError` that says what is wrong with it, and for which key. */
export function encodeValue(serializer: Serializer, key: string, value: unknown, limitBytes: number): Uint8Array {
  const bytes = toBytes(serializer, key, value)
  if (bytes.length <= limitBytes) return bytes
  throw new RangeError(
    `the value of '${key}' has ${bytes.length} bytes, and at most ${limitBytes} can be stored: store a reference to it instead`,
  )
}

function toBytes(serializer: Serializer, key: string, value: unknown): Uint8Array {
  try {
    const encoded = serializer.encode(value)
    return typeof encoded === 'string' ? Buffer.from(encoded) : encoded
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new TypeError(`the value of '${key}' cannot be stored: ${why}; the option serialize can change that`, {
      cause: error,
    })
  }
}
