/** Documents to bytes and back, with the types of values.ts. */
import { deserialize, serialize } from 'bson'
import type { Document } from './values.ts'

/** Longs as bigints; what the client sent as binary stays binary. */
export function read(bytes: Uint8Array): Document {
  return deserialize(bytes, { useBigInt64: true, promoteBuffers: false })
}

export function bytesOf(document: Document): Buffer {
  return Buffer.from(serialize(document))
}
