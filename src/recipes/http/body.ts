/** Reading a body up to a bound: what is within it is stored, and what is larger goes on as a stream. */
import { onAbort } from '../../core/on-abort.ts'

/** The whole of it, or what was read until then and the rest. */
export type BoundedBody =
  | { readonly state: 'whole'; readonly bytes: Buffer }
  | { readonly state: 'large'; readonly stream: ReadableStream<Uint8Array> }

type Reader = ReadableStreamDefaultReader<unknown>

/** Rejects when `unwanted` aborts. The source is ended then, also where it makes nothing for the moment. */
export async function readUpTo(
  source: ReadableStream<unknown>,
  most: number,
  unwanted: AbortSignal,
): Promise<BoundedBody> {
  const reader = source.getReader()
  const forget = onAbort(unwanted, () => void reader.cancel(unwanted.reason).catch(() => {}))
  try {
    const chunks: Buffer[] = []
    let bytes = 0
    for (;;) {
      const { value, done } = await reader.read()
      unwanted.throwIfAborted()
      if (done) return { state: 'whole', bytes: Buffer.concat(chunks) }
      const chunk = bytesOf(value)
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > most) return { state: 'large', stream: withRest(chunks, reader) }
    }
  } finally {
    forget()
  }
}

/** What was read, and then the rest. Its source ends with its reader, also where that goes before the first chunk. */
function withRest(read: Buffer[], source: Reader): ReadableStream<Uint8Array> {
  return new ReadableStream({
    pull: async (controller) => {
      const before = read.shift()
      if (before !== undefined) {
        controller.enqueue(before)
        return
      }
      const { value, done } = await source.read()
      if (done) controller.close()
      else controller.enqueue(bytesOf(value))
    },
    cancel: (reason) => source.cancel(reason),
  })
}

function bytesOf(chunk: unknown): Buffer {
  return typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.from(chunk as Uint8Array)
}
