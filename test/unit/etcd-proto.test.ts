/**
 * The codec: what is written is read again, whatever it is, and the bytes are those that Protocol Buffers prescribe.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { FRAME_BYTES, FrameReader, ProtoReader, ProtoWriter } from '../../src/clients/etcd/proto.ts'

const written = (writer: ProtoWriter): Buffer => writer.framed().subarray(FRAME_BYTES)

describe('protocol buffers', () => {
  test('the examples of the specification', () => {
    expect(written(new ProtoWriter().number(1, 150)).toString('hex')).toBe('089601')
    expect(written(new ProtoWriter().bytes(2, 'testing')).toString('hex')).toBe('120774657374696e67')
    expect(written(new ProtoWriter().message(3, (inner) => inner.number(1, 150))).toString('hex')).toBe('1a03089601')
    expect(written(new ProtoWriter().number(1, -2n)).toString('hex')).toBe('08feffffffffffffffff01')
    expect(written(new ProtoWriter().number(1, 0).flag(2, false).text(3, '')).length).toBe(0)
  })

  test('every 64-bit number comes back', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (value) => {
        const reader = new ProtoReader(written(new ProtoWriter().number(7, value)))
        expect(reader.next()).toBe(value !== 0n)
        if (value !== 0n) expect(reader.long()).toBe(value)
      }),
    )
  })

  test('messages inside messages come back, of any length, and what is not asked for is passed over', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40_000 }), fc.integer({ min: 0, max: 4 }), (text, depth) => {
        const nest = (writer: ProtoWriter, left: number): void => {
          writer.number(9, 2n ** 40n).bytes(8, 'passed over')
          if (left === 0) writer.bytes(1, text)
          else writer.message(2, (inner) => nest(inner, left - 1))
          writer.number(9, 1)
        }
        const writer = new ProtoWriter()
        nest(writer, depth)
        const find = (reader: ProtoReader): string | undefined => {
          let found: string | undefined
          while (reader.next()) {
            if (reader.field === 1) found = reader.text()
            else if (reader.field === 2) found = find(reader.message())
          }
          return found
        }
        expect(find(new ProtoReader(written(writer)))).toBe(text)
      }),
    )
  })

  test('a message that is cut short is an error, not a guess', () => {
    const bytes = written(new ProtoWriter().bytes(1, 'a text of some length').number(2, 300))
    for (let length = 1; length < bytes.length; length += 1) {
      const read = (): void => {
        const reader = new ProtoReader(bytes.subarray(0, length))
        let fields = 0
        while (reader.next()) fields += reader.field === 1 ? reader.text().length : reader.number()
        // Cut between two fields, it is a shorter message.
        expect(length).toBe(23)
        expect(fields).toBe(21)
      }
      if (length === 23) read()
      else expect(read, `${length} bytes`).toThrow(RangeError)
    }
  })

  test('messages are found in a stream, in whatever pieces it comes', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 8 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }),
        (messages, sizes) => {
          const stream = Buffer.concat(messages.map((bytes) => new ProtoWriter().bytes(1, Buffer.from(bytes)).framed()))
          const found: Buffer[] = []
          const taking = new FrameReader((message) => found.push(message))
          for (let at = 0, piece = 0; at < stream.length; piece += 1) {
            const size = sizes[piece % sizes.length] as number
            taking.take(stream.subarray(at, at + size))
            at += size
          }
          const texts = found.map((message) => {
            const reader = new ProtoReader(message)
            return reader.next() ? reader.bytes() : undefined
          })
          expect(texts).toEqual(messages.map((bytes) => Buffer.from(bytes)))
        },
      ),
    )
  })
})
