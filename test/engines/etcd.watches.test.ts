/**
 * Watches that the server refuses. The etcd that is at hand says which one it refuses; newer ones do not, so what they
 * say is said by a peer of our own: a test of how we read it, not of etcd.
 */
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test, vi } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import { FrameReader, ProtoReader, ProtoWriter } from '../../src/clients/etcd/proto.ts'
import { type WatchHandler, WatchStream } from '../../src/clients/etcd/watch-stream.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { openEtcd } from '../../src/engines/etcd/index.ts'
import { EtcdNames } from '../../src/engines/etcd/names.ts'
import { observeLine } from '../../src/engines/etcd/observers.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 10 }

await describeServer('watches on an etcd with users', findOwnEtcd, (source) => {
  test('who may not watch is told so', async () => {
    await using server = await EtcdServer.start(source)
    const ask = async (path: string, body: object): Promise<void> => {
      const answer = await fetch(`http://127.0.0.1:${server.port}/v3/auth/${path}`, {
        method: 'POST',
        body: JSON.stringify(body),
      })
      expect(answer.ok, `${path}: ${answer.status}`).toBe(true)
    }
    await ask('user/add', { name: 'root', password: 'root' })
    await ask('user/grant', { user: 'root', role: 'root' })
    await ask('role/add', { name: 'locks' })
    await ask('role/grant', {
      name: 'locks',
      perm: { permType: 'READWRITE', key: btoa('mine/'), range_end: btoa('mine0') },
    })
    await ask('user/add', { name: 'app', password: 'app' })
    await ask('user/grant', { user: 'app', role: 'locks' })
    await ask('enable', {})
    const url = `etcd://app:app@127.0.0.1:${server.port}`
    const [mine, theirs] = [await openEtcd(`${url}?prefix=mine%2F`), await openEtcd(`${url}?prefix=theirs%2F`)]
    onTestFinished(async () => {
      for (const engine of [mine, theirs]) await engine[Symbol.asyncDispose]()
    })
    await (await mine.watch?.('a', () => undefined))?.[Symbol.asyncDispose]()
    const watching = Promise.resolve(theirs.watch?.('a', () => undefined))
    await expect(watching).rejects.toMatchObject({ code: 'ENGINE', outcome: 'not-applied', transient: false })
    await expect(watching).rejects.toThrow('does not let us watch this: etcdserver: permission denied')
  })
})

/**
 * Answers what is asked of a watch stream as newer servers do. `refuses` is asked for each watch, by its key and the
 * number of the stream.
 */
class Peer {
  readonly #server: Http2Server
  streams = 0
  #newest: ServerHttp2Stream | undefined
  /** Which keys were asked for, and on which stream. */
  readonly asked: string[] = []
  /** The answer about this key waits for a call of `letGo`. */
  keepsBack: string | undefined
  letGo: () => void = () => undefined

  static async start(refuses: (key: string, stream: number) => boolean): Promise<Peer> {
    const peer = new Peer(refuses)
    await new Promise<void>((resolve) => void peer.#server.listen(0, '127.0.0.1', resolve))
    return peer
  }

  private constructor(refuses: (key: string, stream: number) => boolean) {
    this.#server = createServer()
    this.#server.on('stream', (stream) => {
      this.streams += 1
      this.#newest = stream
      const number = this.streams
      stream.on('error', () => undefined)
      stream.respond({ 'content-type': 'application/grpc' }, { waitForTrailers: true })
      const messages = new FrameReader((bytes) =>
        this.#answer(stream, number, new ProtoReader(bytes), (key) => refuses(key, number)),
      )
      stream.on('data', (bytes: Buffer) => messages.take(bytes))
    })
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  close(): void {
    this.#server.close()
  }

  /** As a member does that goes away. */
  breakStream(): void {
    this.#newest?.destroy()
  }

  #answer(stream: ServerHttp2Stream, number: number, request: ProtoReader, refuses: (key: string) => boolean): void {
    if (!request.next() || request.field !== 1) return
    const creation = request.message()
    let [key, id] = ['', 0]
    while (creation.next()) {
      if (creation.field === 1) key = creation.text()
      else if (creation.field === 7) id = creation.number()
    }
    this.asked.push(`${key} on ${number}`)
    const answer = new ProtoWriter().message(1, (header) => header.number(3, 7).number(4, 1))
    if (refuses(key)) answer.number(2, -1).flag(3, true).flag(4, true).text(6, 'etcdserver: permission denied')
    else answer.number(2, id).flag(3, true)
    const say = (): void => void stream.write(answer.framed())
    if (key === this.keepsBack) {
      this.keepsBack = undefined
      this.letGo = say
    } else say()
  }
}

/** What a watch is told, in order. */
interface Told extends WatchHandler {
  readonly told: string[]
}

function watcher(): Told {
  const told: string[] = []
  return {
    told,
    changed: () => void told.push('changed'),
    compacted: () => void told.push('compacted'),
    created: () => void told.push('created'),
    refused: ({ message }) => void told.push(message),
  }
}

async function watchesOn(
  refuses: (key: string, stream: number) => boolean,
): Promise<{ watches: WatchStream; peer: Peer }> {
  const peer = await Peer.start(refuses)
  const client = new EtcdClient({ endpoints: [{ host: '127.0.0.1', port: peer.port }] })
  const watches = new WatchStream(client, systemClock)
  onTestFinished(() => {
    watches.stop()
    client.close()
    peer.close()
  })
  return { watches, peer }
}

async function watching(
  refuses: (key: string, stream: number) => boolean,
  keys: readonly string[],
): Promise<{ told: Told[]; peer: Peer }> {
  const { watches, peer } = await watchesOn(refuses)
  const told = keys.map((key) => {
    const one = watcher()
    watches.add({ key, fromRevision: 0n, deletesOnly: true }, one)
    return one
  })
  return { told, peer }
}

const REFUSED = 'the server does not let us watch this: etcdserver: permission denied'

test('of several watches the one is told that a peer refused without saying which', async () => {
  const { told } = await watching((key) => key === 'b', ['a', 'b', 'c'])
  await vi.waitFor(() => expect(told[1]?.told).toEqual([REFUSED]), LIMIT)
  await vi.waitFor(() => expect(told.map(({ told }) => told.at(-1))).toEqual(['created', REFUSED, 'created']), LIMIT)
})

test('all of many that are refused are told, and a few streams tell them', async () => {
  const { told, peer } = await watching(() => true, ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])
  await vi.waitFor(() => expect(told.map(({ told }) => told)).toEqual(told.map(() => [REFUSED])), LIMIT)
  expect(peer.streams).toBe(3)
})

test('a watch that was refused once is made on the next stream, and nothing is said of it', async () => {
  const { told, peer } = await watching((_, stream) => stream === 1, ['a', 'b'])
  await vi.waitFor(() => expect(told.map(({ told }) => told)).toEqual([['created'], ['created']]), LIMIT)
  expect(peer.streams).toBe(2)
})

test('a stream that has refused one, and is to be given up, is asked for no others', async () => {
  const { watches, peer } = await watchesOn((key, stream) => key === 'a' && stream === 1)
  peer.keepsBack = 'b'
  const add = (key: string): Told => {
    const one = watcher()
    watches.add({ key, fromRevision: 0n, deletesOnly: true }, one)
    return one
  }
  const told = ['a', 'z', 'b'].map(add)
  // Answers come in order: by then the first was refused.
  await vi.waitFor(() => expect(told[1]?.told).toEqual(['created']), LIMIT)
  told.push(add('c'))
  peer.letGo()
  await vi.waitFor(
    () => expect(told.map(({ told }) => told.at(-1))).toEqual(['created', 'created', 'created', 'created']),
    LIMIT,
  )
  expect(peer.asked).toEqual(['a on 1', 'z on 1', 'b on 1', 'a on 2', 'z on 2', 'b on 2', 'c on 2'])
})

test('an observer that loses the right to watch does not ask again and again; when it has it back, it is told that something may have changed', async () => {
  let refusing = false
  const { watches, peer } = await watchesOn((key) => refusing && key.includes('theirs'))
  const pauses: (() => void)[] = []
  const clock: Clock = {
    ...systemClock,
    timer: (_, fire) => {
      pauses.push(fire)
      return { cancel: () => undefined }
    },
  }
  const observing = { watches, names: new EtcdNames(''), clock }
  const [mine, theirs] = [vi.fn(), vi.fn()]
  await observeLine(observing, 'mine', mine)
  await observeLine(observing, 'theirs', theirs)
  refusing = true
  peer.breakStream()
  await vi.waitFor(() => expect(theirs).toHaveBeenCalledTimes(1), LIMIT)
  expect(pauses).toHaveLength(1)
  // The first, and one for each refusal; on the last everything else goes on.
  await vi.waitFor(() => expect(peer.streams).toBe(4), LIMIT)
  refusing = false
  pauses[0]?.()
  await vi.waitFor(() => expect(theirs).toHaveBeenCalledTimes(2), LIMIT)
  expect(peer.streams).toBe(4)
  expect(mine).not.toHaveBeenCalled()
})
