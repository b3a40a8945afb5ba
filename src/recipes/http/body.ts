/** Reading a body up to a bound: what is within it is stored, and what is larger goes on as a stream. */

/** The whole of it, or what was read until then and the rest. */
export type BoundedBody =
  | { readonly state: 'whole'; readonly bytes: Buffer }
  | { readonly state: 'large'; readonly chunks: () => AsyncGenerator<Buffer, void, void> }

export async function readUpTo(source: AsyncIterable<unknown>, most: number): Promise<BoundedBody> {
  const iterator = source[Symbol.asyncIterator]()
  const chunks: Buffer[] = []
  let bytes = 0
  for (;;) {
    const { value, done } = await iterator.next()
    if (done === true) return { state: 'whole', bytes: Buffer.concat(chunks) }
    const chunk = typeof value === 'string' ? Buffer.from(value) : Buffer.from(value as Uint8Array)
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > most) return { state: 'large', chunks: () => rest(chunks, iterator) }
  }
}

async function* rest(read: readonly Buffer[], iterator: AsyncIterator<unknown>): AsyncGenerator<Buffer, void, void> {
  try {
    yield* read
    for (;;) {
      const { value, done } = await iterator.next()
      if (done === true) return
      yield typeof value === 'string' ? Buffer.from(value) : Buffer.from(value as Uint8Array)
    }
  } finally {
    await iterator.return?.()
  }
}
