/**
 * Jute, the encoding of ZooKeeper: numbers big-endian, texts and bytes with their length before them, and a length
 * before every message. Nothing here does I/O.
 *
 * What is read comes from outside, and may be anything: the answer of another kind of server, a torn frame, an absurd
 * length. Each is a `JuteError` that says what is wrong. Nothing is allocated by a length that was not checked.
 */

/** What was read is not what a ZooKeeper server sends. */
export class JuteError extends Error {
  override readonly name: string = 'JuteError'
}

const FIRST_SIZE = 256

export class JuteWriter {
  #bytes = Buffer.allocUnsafe(FIRST_SIZE)
  /** The length of the message comes first, when it is known. */
  #length = 4

  int(value: number): this {
    this.#reserve(4)
    this.#length = this.#bytes.writeInt32BE(value, this.#length)
    return this
  }

  long(value: bigint): this {
    this.#reserve(8)
    this.#length = this.#bytes.writeBigInt64BE(value, this.#length)
    return this
  }

  bool(value: boolean): this {
    this.#reserve(1)
    this.#length = this.#bytes.writeUInt8(value ? 1 : 0, this.#length)
    return this
  }

  bytes(value: Buffer): this {
    this.int(value.length)
    this.#reserve(value.length)
    this.#length += value.copy(this.#bytes, this.#length)
    return this
  }

  text(value: string): this {
    const size = Buffer.byteLength(value)
    this.int(size)
    this.#reserve(size)
    this.#length += this.#bytes.write(value, this.#length)
    return this
  }

  texts(values: Iterable<string>): this {
    const all = [...values]
    this.int(all.length)
    for (const value of all) this.text(value)
    return this
  }

  /** The message, with its length before it. The writer is of no use afterwards. */
  framed(): Buffer {
    this.#bytes.writeInt32BE(this.#length - 4, 0)
    return this.#bytes.subarray(0, this.#length)
  }

  #reserve(size: number): void {
    if (this.#length + size <= this.#bytes.length) return
    const larger = Buffer.allocUnsafe(2 * (this.#length + size))
    this.#bytes.copy(larger, 0, 0, this.#length)
    this.#bytes = larger
  }
}

export class JuteReader {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  /** How many bytes are left. */
  get left(): number {
    return this.#bytes.length - this.#at
  }

  int(): number {
    return this.#bytes.readInt32BE(this.#step(4))
  }

  long(): bigint {
    return this.#bytes.readBigInt64BE(this.#step(8))
  }

  bool(): boolean {
    return this.#bytes.readUInt8(this.#step(1)) !== 0
  }

  /** A length of -1 stands for nothing, which is read as no bytes. */
  bytes(): Buffer {
    const size = this.int()
    if (size < -1) throw new JuteError(`a length of ${size}`)
    const from = this.#step(Math.max(size, 0))
    return this.#bytes.subarray(from, this.#at)
  }

  text(): string {
    return this.bytes().toString()
  }

  texts(): string[] {
    const count = this.int()
    // Each of them takes the four bytes of its length, at least.
    if (count < -1 || count * 4 > this.left) throw new JuteError(`a list of ${count}, in ${this.left} bytes`)
    return Array.from({ length: Math.max(count, 0) }, () => this.text())
  }

  #step(size: number): number {
    if (size > this.left) throw new JuteError(`${size} bytes wanted, and ${this.left} are left of the message`)
    const from = this.#at
    this.#at += size
    return from
  }
}

/** The longest message that is read. A server sends 1 MiB at most, unless it was told otherwise. */
export const LONGEST_FRAME: number = 2 ** 26

/** From pieces of a stream, as they come, to whole messages. */
export class JuteFrames {
  readonly #take: (message: Buffer) => void
  #pieces: Buffer[] = []
  #size = 0
  /** With fewer bytes nothing is done: pieces of a long message are joined once, when all of it is there. */
  #wanted = 4

  constructor(take: (message: Buffer) => void) {
    this.#take = take
  }

  /** Throws `JuteError` if this cannot be the beginning of a message, and whatever the receiver throws. */
  push(piece: Buffer): void {
    this.#pieces.push(piece)
    this.#size += piece.length
    if (this.#size < this.#wanted) return
    let bytes = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces)
    this.#wanted = 4
    while (bytes.length >= 4) {
      const length = bytes.readInt32BE(0)
      if (length < 0 || length > LONGEST_FRAME) throw new JuteError(`a message of ${length} bytes`)
      if (bytes.length < 4 + length) {
        this.#wanted = 4 + length
        break
      }
      this.#take(bytes.subarray(4, 4 + length))
      bytes = bytes.subarray(4 + length)
    }
    this.#pieces = bytes.length === 0 ? [] : [bytes]
    this.#size = bytes.length
  }
}
