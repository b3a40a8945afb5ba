/** From the bytes of a stream, in whatever pieces they come, to the messages that gRPC framed in them. */
import { FRAME_BYTES } from './proto.ts'

export class Messages {
  readonly #each: (message: Buffer) => void
  #rest: Buffer[] = []
  #length = 0

  constructor(each: (message: Buffer) => void) {
    this.#each = each
  }

  take(bytes: Buffer): void {
    this.#rest.push(bytes)
    this.#length += bytes.length
    // A long message comes in many pieces: they are put together once, when all are there.
    if (this.#length < this.#wanted()) return
    let whole = this.#rest.length === 1 ? (this.#rest[0] as Buffer) : Buffer.concat(this.#rest, this.#length)
    while (whole.length >= FRAME_BYTES) {
      const end = FRAME_BYTES + whole.readUInt32BE(1)
      if (whole.length < end) break
      this.#each(whole.subarray(FRAME_BYTES, end))
      whole = whole.subarray(end)
    }
    this.#rest = whole.length === 0 ? [] : [whole]
    this.#length = whole.length
  }

  /** How many bytes it takes to have the next message, as far as that is known. */
  #wanted(): number {
    const [first] = this.#rest
    if (first === undefined || this.#length < FRAME_BYTES) return FRAME_BYTES
    if (first.length < FRAME_BYTES) this.#rest = [Buffer.concat(this.#rest, this.#length)]
    return FRAME_BYTES + (this.#rest[0] as Buffer).readUInt32BE(1)
  }
}
