/** Reading a body up to a bound: what is within it is stored, and what is larger goes on as a stream. */

/** The whole of it, or what was read until then and the rest. */
export type BoundedBody =
  | { readonly state: 'whole'; readonly bytes: Buffer }
  | { readonly state: 'large'; readonly chunks: () => AsyncIterableIterator<Buffer, void> }

export async function readUpTo(source: AsyncIterable<unknown>, most: number): Promise<BoundedBody> {
  const iterator = source[Symbol.asyncIterator]()
  const chunks: Buffer[] = []
  let bytes = 0
  for (;;) {
    const { value, done } = await iterator.next()
    if (done === true) return { state: 'whole', bytes: Buffer.concat(chunks) }
    const chunk = bytesOf(value)
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > most) return { state: 'large', chunks: () => rest(chunks, iterator) }
  }
}

/** No generator, which does not end its source if its reader has gone before the first chunk. */
function rest(read: Buffer[], source: AsyncIterator<unknown>): AsyncIterableIterator<Buffer, void> {
  return {
    next: async () => {
      const value = read.shift()
      if (value !== undefined) return { value, done: false }
      const found = await source.next()
      return found.done === true ? { value: undefined, done: true } : { value: bytesOf(found.value), done: false }
    },
    return: async () => {
      await source.return?.()
      return { value: undefined, done: true }
    },
    [Symbol.asyncIterator]() {
      return this
    },
  }
}

function bytesOf(chunk: unknown): Buffer {
  return typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.from(chunk as Uint8Array)
}
