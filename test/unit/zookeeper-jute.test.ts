/** The codec of ZooKeeper: what is written is read again, and whatever else comes is a clear error, never a hang. */
import { createServer, type Server } from 'node:net'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { ZooKeeperConnection } from '../../src/clients/zookeeper/connection.ts'
import { wasDecided, ZOOKEEPER_CODE, ZooKeeperError } from '../../src/clients/zookeeper/errors.ts'
import { JuteError, JuteFrames, JuteReader, JuteWriter, LONGEST_FRAME } from '../../src/clients/zookeeper/jute.ts'
import {
  OPCODE,
  readChildren,
  readConnect,
  readCreated,
  readData,
  readEvent,
  readHead,
  readMulti,
  SPECIAL_XID,
} from '../../src/clients/zookeeper/messages.ts'
import { systemClock } from '../../src/core/clock.ts'

const written = (writer: JuteWriter): Buffer => writer.framed().subarray(4)

describe('jute', () => {
  test('the bytes are those of the protocol', () => {
    const message = new JuteWriter()
      .int(-2)
      .long(11n)
      .bool(true)
      .text('ä')
      .bytes(Buffer.from([7]))
      .framed()
    expect(message.toString('hex')).toBe(
      ['00000018', 'fffffffe', '000000000000000b', '01', '00000002c3a4', '0000000107'].join(''),
    )
  })

  test('whatever is written comes back', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
        fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
        fc.array(fc.string({ unit: 'grapheme', maxLength: 400 })),
        (int, long, texts) => {
          const reader = new JuteReader(written(new JuteWriter().int(int).long(long).texts(texts).bool(false)))
          expect([reader.int(), reader.long(), reader.texts(), reader.bool(), reader.left]).toEqual([
            int,
            long,
            texts,
            false,
            0,
          ])
        },
      ),
    )
  })

  test('messages come whole, in whatever pieces they arrive', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 300 })),
        fc.array(fc.integer({ min: 1, max: 40 })),
        (all, cuts) => {
          const stream = Buffer.concat(all.map((bytes) => new JuteWriter().bytes(Buffer.from(bytes)).framed()))
          const got: Buffer[] = []
          const frames = new JuteFrames((message) => got.push(Buffer.from(new JuteReader(message).bytes())))
          let at = 0
          for (let turn = 0; at < stream.length; turn += 1) {
            const size = cuts.length === 0 ? stream.length : (cuts[turn % cuts.length] as number)
            frames.push(stream.subarray(at, at + size))
            at += size
          }
          expect(got).toEqual(all.map((bytes) => Buffer.from(bytes)))
        },
      ),
    )
  })

  test.each([-1, LONGEST_FRAME + 1, 2 ** 31 - 1, -(2 ** 31)])('a message of %i bytes is refused at once', (length) => {
    const head = Buffer.alloc(4)
    head.writeInt32BE(length)
    expect(() => new JuteFrames(() => undefined).push(head)).toThrow(JuteError)
  })

  test('readers of messages end with an answer or a clear error, whatever they are given', () => {
    const readers = [readConnect, readHead, readEvent, readCreated, readData, readChildren, readMulti]
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.constantFrom(...readers), (bytes, read) => {
        try {
          read(new JuteReader(Buffer.from(bytes)))
        } catch (error) {
          expect(error instanceof JuteError || error instanceof ZooKeeperError, String(error)).toBe(true)
        }
      }),
      { numRuns: 2_000 },
    )
  })

  test('a list that is longer than its message is refused before anything is allocated', () => {
    const list = new JuteReader(written(new JuteWriter().int(2 ** 30)))
    expect(() => list.texts()).toThrow(JuteError)
  })
})

describe('a connection to something that speaks nonsense', () => {
  async function speaking(words: readonly Buffer[]): Promise<number> {
    const server: Server = createServer((socket) => {
      socket.on('error', () => undefined)
      let said = 0
      socket.on('data', () => {
        const next = words[said]
        said += 1
        if (next === undefined) socket.destroy()
        else socket.write(next)
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void server.close())
    return (server.address() as { port: number }).port
  }

  function dial(port: number, zxid: (zxid: bigint) => void = () => undefined): ZooKeeperConnection {
    const connection = new ZooKeeperConnection({
      endpoint: { host: '127.0.0.1', port },
      clock: systemClock,
      request: { lastZxid: 0n, timeoutMs: 1_000, sessionId: 0n, password: Buffer.alloc(16) },
      limitMs: 300,
      nextXid: () => 1,
      sent: () => undefined,
      event: () => undefined,
      zxid,
    })
    onTestFinished(() => connection.close())
    return connection
  }

  const welcome = (): Buffer => new JuteWriter().int(0).int(1_000).long(7n).bytes(Buffer.alloc(16)).framed()
  const answer = (xid: number): JuteWriter => new JuteWriter().int(xid).long(1n).int(0)
  const ask = (connection: ZooKeeperConnection): Promise<unknown> =>
    connection.request({
      opcode: OPCODE.exists,
      what: 'look',
      write: (writer) => void writer.text('/').bool(false),
      read: readCreated,
    })

  test('silence instead of a handshake is an error in time', async () => {
    await expect(dial(await speaking([Buffer.alloc(0)])).ready).rejects.toThrow('no answer as of a ZooKeeper server')
  })

  test('any bytes instead of a handshake are an error, or the end of the connection', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 4, maxLength: 60 }), async (bytes) => {
        const connection = dial(await speaking([Buffer.from(bytes)]))
        const outcome = await connection.ready.then(
          () => 'ready',
          (error: unknown) => error,
        )
        expect(outcome === 'ready' || outcome instanceof ZooKeeperError).toBe(true)
        connection.close()
      }),
      { numRuns: 20 },
    )
  })

  test.each([
    ['an answer to another request', () => answer(99).framed()],
    ['an answer that is cut short', () => answer(1).text('/a').framed()],
    ['an answer of an absurd length', () => Buffer.from('7fffffff', 'hex')],
    ['the head of an answer, and no more', () => new JuteWriter().int(1).framed()],
    ['silence', () => Buffer.alloc(0)],
  ])('%s ends the connection, and the request is of unknown outcome', async (_, reply) => {
    const connection = dial(await speaking([welcome(), reply(), reply()]))
    await connection.ready
    await expect(ask(connection)).rejects.toMatchObject({ refused: false })
    await expect(ask(connection)).rejects.toMatchObject({ refused: true })
    await connection.closed
  })

  test('an event does not say that the other events of its transaction were heard', async () => {
    const event = new JuteWriter().int(SPECIAL_XID.event).long(9n).int(0).int(2).int(3).text('/a').framed()
    const refusal = new JuteWriter().int(1).long(7n).int(ZOOKEEPER_CODE.noNode).framed()
    const heard: bigint[] = []
    const connection = dial(await speaking([welcome(), Buffer.concat([event, refusal])]), (zxid) => heard.push(zxid))
    await connection.ready
    await expect(ask(connection)).rejects.toMatchObject({ code: ZOOKEEPER_CODE.noNode })
    expect(heard).toEqual([7n])
  })

  test('a server that throttles answers by itself: that proves nothing about the session', () => {
    expect([0, ZOOKEEPER_CODE.noNode, ZOOKEEPER_CODE.throttled].map(wasDecided)).toEqual([true, true, false])
  })
})
