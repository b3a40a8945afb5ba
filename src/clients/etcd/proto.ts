/**
 * As much of Protocol Buffers as etcd's messages need: whole numbers, bytes, and messages inside messages
 * (https://protobuf.dev/programming-guides/encoding/); and the frames of gRPC around them. What each field means is in
 * messages.ts.
 */

/** gRPC: one byte for compression, four for the length. */
export const FRAME_BYTES = 5

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

/** Writes one message, and leaves room for the frame in front of it, so that nothing has to be copied. */
export class ProtoWriter {
  #buffer: Buffer = Buffer.allocUnsafe(512)
  #at = FRAME_BYTES

  /** A whole number. 0 is not written: it is what a missing field means. */
  number(field: number, value: number | bigint): this {
    if (value === 0 || value === 0n) return this
    this.#reserve(20)
    this.#varint((field << 3) | VARINT)
    if (typeof value === 'number' && value > 0 && value < 2 ** 31) this.#varint(value)
    else this.#longVarint(BigInt.asUintN(64, BigInt(value)))
    return this
  }

  flag(field: number, value: boolean | undefined): this {
    return this.number(field, value === true ? 1 : 0)
  }

  text(field: number, value: string | undefined): this {
    if (value === undefined || value === '') return this
    return this.bytes(field, value)
  }

  bytes(field: number, value: string | Buffer): this {
    const length = typeof value === 'string' ? Buffer.byteLength(value) : value.length
    this.#reserve(length + 20)
    this.#varint((field << 3) | BYTES)
    this.#varint(length)
    this.#at += typeof value === 'string' ? this.#buffer.write(value, this.#at) : value.copy(this.#buffer, this.#at)
    return this
  }

  /** A message inside this one, written by `write`. */
  message(field: number, write: (inner: ProtoWriter) => void): this {
    this.#reserve(20)
    this.#varint((field << 3) | BYTES)
    // Most messages are short: one byte is left for the length. A longer message is moved to make room for more.
    this.#at += 1
    const start = this.#at
    write(this)
    const length = this.#at - start
    const extra = varintBytes(length) - 1
    if (extra > 0) {
      this.#reserve(extra)
      this.#buffer.copyWithin(start + extra, start, this.#at)
    }
    this.#at = start - 1
    this.#varint(length)
    this.#at += length
    return this
  }

  /** The message in its frame. */
  framed(): Buffer {
    this.#buffer.writeUInt8(0, 0)
    this.#buffer.writeUInt32BE(this.#at - FRAME_BYTES, 1)
    return this.#buffer.subarray(0, this.#at)
  }

  #varint(value: number): void {
    let rest = value
    while (rest > 127) {
      this.#buffer[this.#at++] = (rest & 127) | 128
      rest >>>= 7
    }
    this.#buffer[this.#at++] = rest
  }

  #longVarint(value: bigint): void {
    let rest = value
    while (rest > 127n) {
      this.#buffer[this.#at++] = Number(rest & 127n) | 128
      rest >>= 7n
    }
    this.#buffer[this.#at++] = Number(rest)
  }

  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#buffer.length) return
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#at + bytes))
    this.#buffer.copy(larger, 0, 0, this.#at)
    this.#buffer = larger
  }
}

function varintBytes(value: number): number {
  let bytes = 1
  for (let rest = value >>> 7; rest > 0; rest >>>= 7) bytes += 1
  return bytes
}

/**
 * Reads one message, field by field: `while (reader.next()) switch (reader.field) ...`. A field that is not read is
 * skipped.
 */
export class ProtoReader {
  readonly #bytes: Buffer
  readonly #end: number
  #at: number
  #kind = VARINT
  #unread = false
  field = 0

  constructor(bytes: Buffer, start = 0, end: number = bytes.length) {
    this.#bytes = bytes
    this.#at = start
    this.#end = end
  }

  next(): boolean {
    if (this.#unread) this.#skip()
    if (this.#at >= this.#end) return false
    const tag = this.#short()
    this.field = tag >>> 3
    this.#kind = tag & 7
    this.#unread = true
    return true
  }

  /** A whole number that is surely small: a count, a flag, an enum, seconds. */
  number(): number {
    return Number(this.long())
  }

  /** A signed 64-bit number. */
  long(): bigint {
    this.#unread = false
    let [low, bits] = [0, 0]
    for (;;) {
      const byte = this.#byte()
      low += (byte & 127) * 2 ** bits
      bits += 7
      if (byte < 128) return BigInt(low)
      // Seven bytes, 49 bits, are exact in a double: more than the revisions of servers need today. Beyond, bigints.
      if (bits === 49) return this.#longer(BigInt(low), 49n)
    }
  }

  bytes(): Buffer {
    const [start, end] = this.#span()
    return this.#bytes.subarray(start, end)
  }

  text(): string {
    const [start, end] = this.#span()
    return this.#bytes.toString('utf8', start, end)
  }

  message(): ProtoReader {
    const [start, end] = this.#span()
    return new ProtoReader(this.#bytes, start, end)
  }

  #longer(low: bigint, from: bigint): bigint {
    let [value, bits] = [low, from]
    for (;;) {
      const byte = this.#byte()
      value |= BigInt(byte & 127) << bits
      bits += 7n
      if (byte < 128) return BigInt.asIntN(64, value)
    }
  }

  #span(): [number, number] {
    this.#unread = false
    const length = this.#short()
    const start = this.#at
    if (start + length > this.#end) throw new RangeError('a message of the server is cut short')
    this.#at = start + length
    return [start, this.#at]
  }

  #short(): number {
    let [value, bits] = [0, 0]
    for (;;) {
      const byte = this.#byte()
      value |= (byte & 127) << bits
      if (byte < 128) return value >>> 0
      bits += 7
    }
  }

  #byte(): number {
    if (this.#at >= this.#end) throw new RangeError('a message of the server is cut short')
    return this.#bytes[this.#at++] as number
  }

  #skip(): void {
    this.#unread = false
    if (this.#kind === VARINT) while (this.#byte() >= 128);
    else if (this.#kind === BYTES) this.#span()
    else if (this.#kind === FIXED64) this.#at += 8
    else if (this.#kind === FIXED32) this.#at += 4
    else throw new RangeError(`a message of the server has a field of kind ${this.#kind}, which etcd does not use`)
  }
}

/** Finds the messages that gRPC has framed in the bytes of a stream, in whatever pieces these come. */
export class FrameReader {
  readonly #each: (message: Buffer) => void
  #rest: Buffer[] = []
  #length = 0

  constructor(each: (message: Buffer) => void) {
    this.#each = each
  }

  take(bytes: Buffer): void {
    this.#rest.push(bytes)
    this.#length += bytes.length
    // A long message comes in many pieces. They are joined once, when all are there.
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
