/** The requests that locks need, and their responses: what is in the bytes, and nothing about when they are sent. */
import { answeredError } from './errors.ts'
import { type JuteReader, JuteWriter } from './jute.ts'

/** Numbers of requests, as the protocol has them. */
export const OPCODE = {
  create: 1,
  delete: 2,
  exists: 3,
  getData: 4,
  setData: 5,
  getChildren: 8,
  ping: 11,
  getChildren2: 12,
  check: 13,
  multi: 14,
  create2: 15,
  createContainer: 19,
  multiRead: 22,
  auth: 100,
  setWatches: 101,
  closeSession: -11,
} as const

/** In the place of a number of ours, for what is not answered in order. */
export const SPECIAL_XID = { event: -1, ping: -2, auth: -4, setWatches: -8 } as const

const EVENT_DELETED = 2

export interface NodeStat {
  /** The transaction that created the node: a number that rises with every change of anything. */
  readonly czxid: bigint
  /** The transaction that last wrote its data. */
  readonly mzxid: bigint
  /** When that was, by the clock of the server that led (ms since 1970). */
  readonly mtimeMs: number
  /** How often its data was written. */
  readonly version: number
  /** The session that it ends with; 0 for a node that stays. */
  readonly ephemeralOwner: bigint
  readonly childCount: number
}

export interface CreatedNode {
  readonly path: string
  readonly stat: NodeStat
}

export interface NodeData {
  readonly data: Buffer
  readonly stat: NodeStat
}

/** Who may do what with a node. `nobody`: no client, also not the one that creates it. */
export type NodeAcl = 'open' | 'creator' | 'nobody'

export type NodeMode = 'persistent' | 'ephemeral' | 'ephemeral-sequential' | 'container'

export interface CreateRequest {
  readonly path: string
  readonly data: Buffer
  readonly mode: NodeMode
  readonly acl: NodeAcl
}

/** A step of a `multi`. */
export type MultiStep =
  | { readonly check: { readonly path: string; readonly version: number } }
  | { readonly delete: { readonly path: string; readonly version: number } }
  | { readonly setData: { readonly path: string; readonly data: Buffer; readonly version: number } }
  | { readonly create: CreateRequest }

/** The answer to one step of a `multi`, or to one part of a read of many. */
export interface StepAnswer {
  /** 0, or the code of an error. */
  readonly code: number
  /** Of a node that was created. */
  readonly path?: string
  /** Of a node that was written. */
  readonly stat?: NodeStat
  readonly children?: readonly string[]
}

/** What a watch has told, as the message of the server says it. */
export interface ToldEvent {
  readonly kind: 'deleted' | 'changed'
  readonly path: string
}

export interface NodeEvent extends ToldEvent {
  /**
   * Whether all watches have told what happened before this. After a reconnect they have not: what was missed is told
   * in the order in which the watches are set again.
   */
  readonly inOrder: boolean
}

export interface ConnectRequest {
  readonly lastZxid: bigint
  readonly timeoutMs: number
  readonly sessionId: bigint
  readonly password: Buffer
}

export interface ConnectResponse {
  /** As the server grants it. 0 or less: the session that was named has expired. */
  readonly timeoutMs: number
  readonly sessionId: bigint
  readonly password: Buffer
}

export interface ReplyHeader {
  readonly xid: number
  readonly zxid: bigint
  readonly code: number
}

const FLAGS: Readonly<Record<NodeMode, number>> = {
  persistent: 0,
  ephemeral: 1,
  'ephemeral-sequential': 3,
  container: 4,
}
const ALL_PERMISSIONS = 31
const ACLS: Readonly<Record<NodeAcl, readonly [scheme: string, id: string]>> = {
  open: ['world', 'anyone'],
  creator: ['auth', ''],
  // No password has this digest.
  nobody: ['digest', 'nobody:none'],
}

// ---- what is sent ----

export function connectMessage({ lastZxid, timeoutMs, sessionId, password }: ConnectRequest): Buffer {
  const version = 0
  const readOnly = false
  return new JuteWriter()
    .int(version)
    .long(lastZxid)
    .int(timeoutMs)
    .long(sessionId)
    .bytes(password)
    .bool(readOnly)
    .framed()
}

export function requestHead(xid: number, opcode: number): JuteWriter {
  return new JuteWriter().int(xid).int(opcode)
}

export function pingMessage(): Buffer {
  return requestHead(SPECIAL_XID.ping, OPCODE.ping).framed()
}

export function authMessage(scheme: string, credentials: string): Buffer {
  return requestHead(SPECIAL_XID.auth, OPCODE.auth).int(0).text(scheme).bytes(Buffer.from(credentials)).framed()
}

/** Set watches again after a reconnect. The server tells at once what has happened since `lastZxid`. */
export function setWatchesMessage(
  lastZxid: bigint,
  watches: { readonly data: Iterable<string>; readonly exist: Iterable<string>; readonly child: Iterable<string> },
): Buffer {
  return requestHead(SPECIAL_XID.setWatches, OPCODE.setWatches)
    .long(lastZxid)
    .texts(watches.data)
    .texts(watches.exist)
    .texts(watches.child)
    .framed()
}

export function writeCreate(writer: JuteWriter, { path, data, mode, acl }: CreateRequest): void {
  writer.text(path).bytes(data).int(1).int(ALL_PERMISSIONS)
  const [scheme, id] = ACLS[acl]
  writer.text(scheme).text(id)
  writer.int(FLAGS[mode])
}

export function writeSetData(
  writer: JuteWriter,
  { path, data, version }: { readonly path: string; readonly data: Buffer; readonly version: number },
): void {
  writer.text(path).bytes(data).int(version)
}

export function writeMulti(writer: JuteWriter, steps: readonly MultiStep[]): void {
  for (const step of steps) {
    if ('check' in step) stepHead(writer, OPCODE.check).text(step.check.path).int(step.check.version)
    else if ('delete' in step) stepHead(writer, OPCODE.delete).text(step.delete.path).int(step.delete.version)
    else if ('setData' in step) writeSetData(stepHead(writer, OPCODE.setData), step.setData)
    else writeCreate(stepHead(writer, OPCODE.create), step.create)
  }
  writeLastStep(writer)
}

/** The children of several nodes, in one request. */
export function writeMultiRead(writer: JuteWriter, paths: readonly string[]): void {
  for (const path of paths) stepHead(writer, OPCODE.getChildren).text(path).bool(false)
  writeLastStep(writer)
}

function stepHead(writer: JuteWriter, opcode: number): JuteWriter {
  return writer.int(opcode).bool(false).int(-1)
}

function writeLastStep(writer: JuteWriter): void {
  writer.int(-1).bool(true).int(-1)
}

// ---- what is read ----

export function readConnect(reader: JuteReader): ConnectResponse {
  reader.int()
  const timeoutMs = reader.int()
  const sessionId = reader.long()
  // The response is read once, and its buffer belongs to the socket.
  return { timeoutMs, sessionId, password: Buffer.from(reader.bytes()) }
}

export function readHead(reader: JuteReader): ReplyHeader {
  return { xid: reader.int(), zxid: reader.long(), code: reader.int() }
}

export function readEvent(reader: JuteReader): ToldEvent {
  const type = reader.int()
  reader.int()
  return { kind: type === EVENT_DELETED ? 'deleted' : 'changed', path: reader.text() }
}

export function readStat(reader: JuteReader): NodeStat {
  const czxid = reader.long()
  const mzxid = reader.long()
  reader.long()
  const mtimeMs = Number(reader.long())
  const version = reader.int()
  reader.int()
  reader.int()
  const ephemeralOwner = reader.long()
  reader.int()
  const childCount = reader.int()
  reader.long()
  return { czxid, mzxid, mtimeMs, version, ephemeralOwner, childCount }
}

export function readCreated(reader: JuteReader): CreatedNode {
  return { path: reader.text(), stat: readStat(reader) }
}

export function readData(reader: JuteReader): NodeData {
  return { data: Buffer.from(reader.bytes()), stat: readStat(reader) }
}

export function readChildren(reader: JuteReader): string[] {
  const names = reader.texts()
  readStat(reader)
  return names
}

const FAILED_STEP = -1
/** Codes of steps of a `multi` that would have been done, and that were not tried: another step has failed. */
const NOT_TO_BLAME = new Set([0, -2])

/** Throws if a step has failed: then nothing of the whole was done. */
export function readMulti(reader: JuteReader): readonly StepAnswer[] {
  const answers = readSteps(reader)
  const step = answers.findIndex(({ code }) => !NOT_TO_BLAME.has(code))
  const failed = answers[step]
  if (failed !== undefined) throw answeredError(failed.code, 'multi', step)
  return answers
}

/** One answer for each step. */
export function readSteps(reader: JuteReader): readonly StepAnswer[] {
  const answers: StepAnswer[] = []
  for (;;) {
    const opcode = reader.int()
    const done = reader.bool()
    reader.int()
    if (done) return answers
    if (opcode === OPCODE.create) answers.push({ code: 0, path: reader.text() })
    else if (opcode === OPCODE.setData) answers.push({ code: 0, stat: readStat(reader) })
    else if (opcode === OPCODE.getChildren) answers.push({ code: 0, children: reader.texts() })
    else if (opcode === FAILED_STEP) answers.push({ code: reader.int() })
    else answers.push({ code: 0 })
  }
}
