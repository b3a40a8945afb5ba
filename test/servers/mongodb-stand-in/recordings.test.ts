/**
 * The stand-in is held to recordings of a real MongoDB 5.0: each message of test/recordings is sent to it, and what it
 * answers is what the server answered, to the field, its type and its place.
 *
 * The clock of the stand-in is set to the instant that the recorded answer tells, so that dates are compared as they
 * are. What is left out of the comparison has to vary from run to run, and is listed in `VARIES`; the number of a
 * cursor is followed from answer to question instead. Answers that the recordings do not have, such as that of a hello
 * that waits for news, are not looked at.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { deserialize, EJSON, serialize } from 'bson'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { StandInServer } from './server.ts'
import type { Document } from './values.ts'

interface Message {
  readonly op: 'OP_MSG' | 'OP_QUERY' | 'OP_REPLY'
  readonly id: number
  readonly to: number
  readonly flags?: number
  readonly sections?: readonly Document[]
  readonly query?: Document
  readonly document?: Document
}

interface Recorded {
  readonly scene: string
  readonly connection?: number
  readonly sent?: Message
  readonly answered?: Message
}

/** Fields whose value has to vary, by name; everything else is compared. */
const VARIES: Readonly<Record<string, string>> = {
  processId: 'the identity of a server process',
  connectionId: 'how many connections the server had before',
  clusterTime: 'the time of the last write, with a counter of entries in the log that no client sees',
  operationTime: 'as clusterTime',
  ts: 'as clusterTime',
  lastWriteDate: 'the second of the last write before the recording began',
  majorityWriteDate: 'as lastWriteDate',
}

/** In a resume token: the cluster time in front, and the random id of the collection. */
const TOKEN_TIME = /^82\w{16}/
const TOKEN_COLLECTION = /5A1004\w{32}/

let server: StandInServer | undefined
const sockets = new Map<number, Socket>()

afterEach(async () => {
  vi.restoreAllMocks()
  for (const socket of sockets.values()) socket.destroy()
  sockets.clear()
  await server?.close()
})

describe.each(['stand-alone', 'replica-set'])('a %s server of the recordings', (kind) => {
  const text = readFileSync(`test/recordings/mongodb-5.0-${kind}.json`, 'utf8')
  const recorded = JSON.parse(text) as readonly Recorded[]

  test('is answered for alike by the stand-in', async () => {
    const seen = await replay(recorded, kind === 'replica-set')
    expect(seen.length).toBeGreaterThan(15)
    for (const { scene, answered, expected } of seen) expect({ scene, answered }).toEqual({ scene, answered: expected })
    // toEqual is content with fields in any order.
    for (const { scene, answered, expected } of seen)
      expect(scene + JSON.stringify(answered)).toBe(scene + JSON.stringify(expected))
  })

  test('is told from one that answers otherwise', async () => {
    const altered = recorded.map((each) =>
      each.scene === 'leave, hand-off'
        ? (JSON.parse(JSON.stringify(each).replaceAll('you:b', 'you:c')) as Recorded)
        : each,
    )
    const seen = await replay(altered, kind === 'replica-set')
    const wrong = seen.filter(({ answered, expected }) => JSON.stringify(answered) !== JSON.stringify(expected))
    expect(wrong.map(({ scene }) => scene)).toEqual(['leave, hand-off'])
  })
})

interface Compared {
  readonly scene: string
  readonly answered: unknown
  readonly expected: unknown
}

async function replay(recorded: readonly Recorded[], isReplicaSet: boolean): Promise<readonly Compared[]> {
  let nowMs = 0
  vi.spyOn(Date, 'now').mockImplementation(() => nowMs)
  server = new StandInServer(isReplicaSet)
  await server.listen(0)
  const { address } = server
  const cursors = new Map<string, string>()
  const compared: Compared[] = []
  for (const { scene, connection = 0, sent } of recorded) {
    if (sent === undefined) continue
    const reply = recorded.find((each) => each.connection === connection && each.answered?.to === sent.id)?.answered
    nowMs = instantOf(reply) ?? nowMs
    const socket = await socketOf(connection, address)
    socket.write(bytesOf(replacing(sent, cursors)))
    if (reply === undefined) continue
    const answered = await answerOn(socket, sent.id)
    const expected = reply.document ?? reply.sections?.[0] ?? {}
    const [was, is] = [cursorOf(expected), cursorOf(answered)]
    if (was !== undefined && was !== '0' && is !== undefined) cursors.set(was, is)
    const address127 = /127\.0\.0\.1:\d+/g
    const local = JSON.parse(JSON.stringify(replacing(expected, cursors)).replaceAll(address127, address)) as Document
    compared.push({ scene, answered: masked(answered), expected: masked(local) })
  }
  return compared
}

/** When the server answered: `at` of a line, `now` of a reading, `localTime` of a hello. */
function instantOf(reply: Message | undefined): number | undefined {
  const found = /"(?:now|localTime)":\{"\$date":\{"\$numberLong":"(\d+)"/.exec(JSON.stringify(reply ?? null))
  const written = /"at":\{"\$date":\{"\$numberLong":"(\d+)"/.exec(JSON.stringify(reply ?? null))
  const instant = found?.[1] ?? written?.[1]
  return instant === undefined ? undefined : Number(instant)
}

async function socketOf(connection: number, address: string): Promise<Socket> {
  const open = sockets.get(connection)
  if (open !== undefined) return open
  const socket = connect(Number(address.split(':')[1]), '127.0.0.1')
  await once(socket, 'connect')
  sockets.set(connection, socket)
  return socket
}

/** The recorded message as bytes. */
function bytesOf({ op, id, flags = 0, sections = [], query }: Message): Buffer {
  const header = Buffer.alloc(16)
  header.writeInt32LE(id, 4)
  header.writeInt32LE(op === 'OP_QUERY' ? 2004 : 2013, 12)
  const parts =
    op === 'OP_QUERY'
      ? [Buffer.alloc(4), Buffer.from('admin.$cmd\0'), numbers(0, -1), encoded(query ?? {})]
      : [numbers(flags), ...sections.map(sectionOf)]
  const message = Buffer.concat([header, ...parts])
  message.writeInt32LE(message.length, 0)
  return message
}

function sectionOf(section: Document): Buffer {
  if (!('sequence' in section)) return Buffer.concat([Buffer.from([0]), encoded(section)])
  const name = Buffer.from(`${section.sequence as string}\0`)
  const documents = Buffer.concat((section.documents as Document[]).map(encoded))
  return Buffer.concat([Buffer.from([1]), numbers(4 + name.length + documents.length), name, documents])
}

function numbers(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length)
  for (const [index, value] of values.entries()) bytes.writeInt32LE(value, 4 * index)
  return bytes
}

const encoded = (document: Document): Buffer => Buffer.from(serialize(EJSON.deserialize(document, { relaxed: false })))

/** The answer as canonical extended JSON; it has to name the question that it answers. */
async function answerOn(socket: Socket, to: number): Promise<Document> {
  let bytes: Buffer = Buffer.alloc(0)
  do bytes = Buffer.concat([bytes, ((await once(socket, 'data')) as [Buffer])[0]])
  while (bytes.length < 4 || bytes.length < bytes.readInt32LE(0))
  expect(bytes.readInt32LE(8)).toBe(to)
  const body = bytes.subarray(bytes.readInt32LE(12) === 1 ? 36 : 21)
  return EJSON.serialize(deserialize(body, { promoteValues: false, bsonRegExp: true }), { relaxed: false })
}

function cursorOf(answer: Document): string | undefined {
  return ((answer.cursor as Document | undefined)?.id as Document | undefined)?.$numberLong as string | undefined
}

/** Numbers of cursors that the stand-in gave in place of recorded ones. */
function replacing<Value>(value: Value, cursors: ReadonlyMap<string, string>): Value {
  let text = JSON.stringify(value)
  for (const [was, is] of cursors) text = text.replaceAll(`"$numberLong":"${was}"`, `"$numberLong":"${is}"`)
  return JSON.parse(text) as Value
}

function masked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(masked)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => {
      if (name === '_data' && typeof inner === 'string')
        return [name, inner.replace(TOKEN_TIME, '82<time>').replace(TOKEN_COLLECTION, '5A1004<collection>')]
      return [name, Object.hasOwn(VARIES, name) ? `<${name}>` : masked(inner)]
    }),
  )
}
