/**
 * The wire protocol: OP_MSG with its sections, and OP_QUERY, in which a driver sends its first hello.
 *
 * The bits of OP_MSG: a checksum at the end is read over, never written; `moreToCome` from a client means that it
 * expects no answer. A monitor of a driver allows many answers to its hello, and takes it for a failure if they end.
 * Compression is not offered.
 */
import { bytesOf, read } from './bytes.ts'
import type { Document } from './values.ts'

const HEADER_BYTES = 16
const OP_REPLY = 1
const OP_QUERY = 2004
const OP_MSG = 2013
const CHECKSUM_PRESENT = 1
const MORE_TO_COME = 2
const EXHAUST_ALLOWED = 1 << 16
const LONGEST_MESSAGE_BYTES = 48_000_000

export interface Request {
  readonly id: number
  readonly op: 'OP_MSG' | 'OP_QUERY'
  /** With its document sequences as fields, and `$db`. */
  readonly command: Document
  readonly wantsAnswer: boolean
  /** The client takes any number of answers. */
  readonly takesMany: boolean
}

/** The messages that are complete, and the bytes that are left. */
export function takeRequests(bytes: Buffer): { readonly requests: readonly Request[]; readonly rest: Buffer } {
  const requests: Request[] = []
  let rest = bytes
  while (rest.length >= HEADER_BYTES) {
    const length = rest.readInt32LE(0)
    if (length < HEADER_BYTES || length > LONGEST_MESSAGE_BYTES) throw new Error(`a message of ${length} bytes`)
    if (rest.length < length) break
    requests.push(requestOf(rest.subarray(0, length)))
    rest = rest.subarray(length)
  }
  return { requests, rest }
}

function requestOf(message: Buffer): Request {
  const id = message.readInt32LE(4)
  const op = message.readInt32LE(12)
  if (op === OP_QUERY) return queryOf(message, id)
  if (op !== OP_MSG) throw new Error(`operation ${op} is not known`)
  const flags = message.readUInt32LE(HEADER_BYTES)
  const end = message.length - ((flags & CHECKSUM_PRESENT) === 0 ? 0 : 4)
  const command: Document = {}
  let offset = HEADER_BYTES + 4
  while (offset < end) {
    const kind = message.readUInt8(offset)
    const size = message.readInt32LE(offset + 1)
    const section = message.subarray(offset + 1, offset + 1 + size)
    if (kind === 0) Object.assign(command, read(section))
    else Object.assign(command, sequenceOf(section))
    offset += 1 + size
  }
  const wantsAnswer = (flags & MORE_TO_COME) === 0
  return { id, op: 'OP_MSG', command, wantsAnswer, takesMany: (flags & EXHAUST_ALLOWED) !== 0 }
}

/** A section of kind 1: a name and documents, as if the command had them in an array of that name. */
function sequenceOf(section: Buffer): Document {
  const nameEnd = section.indexOf(0, 4)
  const documents: Document[] = []
  let offset = nameEnd + 1
  while (offset < section.length) {
    const size = section.readInt32LE(offset)
    documents.push(read(section.subarray(offset, offset + size)))
    offset += size
  }
  return { [section.toString('utf8', 4, nameEnd)]: documents }
}

/** Flags, the collection `admin.$cmd`, two numbers, and the command. */
function queryOf(message: Buffer, id: number): Request {
  const nameEnd = message.indexOf(0, HEADER_BYTES + 4)
  const [db] = message.toString('utf8', HEADER_BYTES + 4, nameEnd).split('.')
  const start = nameEnd + 1 + 8
  const command = read(message.subarray(start, start + message.readInt32LE(start)))
  return { id, op: 'OP_QUERY', command: { ...command, $db: db }, wantsAnswer: true, takesMany: false }
}

export interface Answer {
  readonly id: number
  /** What it answers: the request, or the answer before it. */
  readonly to: number
  readonly document: Document
  readonly moreToCome?: boolean
}

export function bytesOfAnswer(request: Request, { id, to, document, moreToCome = false }: Answer): Buffer {
  const body = bytesOf(document)
  const isQuery = request.op === 'OP_QUERY'
  const before = Buffer.alloc(HEADER_BYTES + (isQuery ? 20 : 5))
  before.writeInt32LE(before.length + body.length, 0)
  before.writeInt32LE(id, 4)
  before.writeInt32LE(to, 8)
  before.writeInt32LE(isQuery ? OP_REPLY : OP_MSG, 12)
  // Of an OP_REPLY: the flag for a server that can wait for data, no cursor, from 0, one document.
  if (isQuery) {
    before.writeInt32LE(8, 16)
    before.writeInt32LE(1, 32)
  } else if (moreToCome) before.writeUInt32LE(MORE_TO_COME, HEADER_BYTES)
  return Buffer.concat([before, body])
}
