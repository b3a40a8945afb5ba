/**
 * As much of Protocol Buffers as etcd's messages need: whole numbers, bytes, and messages inside messages, to
 * https://protobuf.dev/programming-guides/encoding/. What each field means is in messages.ts.
 *
 * A message that is written begins with the five bytes that gRPC puts before it, so that it goes out as it is.
 */

/** gRPC: one byte for compression, four for the length. */
export const FRAME_BYTES = 5

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

export class Writer {
  #buffer: Buffer = Buffer.allocUnsafe(512)
  #at = FRAME_BYTES

  /** A whole number; 0 is what is read when nothing is written, so nothing is. */
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
  message(field: number, write: (inner: Writer) => void): this {
    this.#reserve(20)
    this.#varint((field << 3) | BYTES)
    // Most are short: one byte is left for the length, and what is longer is moved along.
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

  /** The message, framed. */
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
 * Reads one message, field by field: `while (reader.next()) switch (reader.field) ...`; what is not asked for is passed
 * over.
 */
export class Reader {
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
      // Seven of them are exact in a double; whatever is longer is not a revision of any server that runs today.
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

  message(): Reader {
    const [start, end] = this.#span()
    return new Reader(this.#bytes, start, end)
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
    if (start + length > this.#end) throw new RangeError('a message that is cut short')
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
    if (this.#at >= this.#end) throw new RangeError('a message that is cut short')
    return this.#bytes[this.#at++] as number
  }

  #skip(): void {
    this.#unread = false
    if (this.#kind === VARINT) while (this.#byte() >= 128);
    else if (this.#kind === BYTES) this.#span()
    else if (this.#kind === FIXED64) this.#at += 8
    else if (this.#kind === FIXED32) this.#at += 4
    else throw new RangeError(`a field of kind ${this.#kind}, which no message of etcd has`)
  }
}
