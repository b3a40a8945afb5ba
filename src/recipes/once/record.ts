/**
 * What `once` stores for a request: one record under one key, from its first execution on until `keep` is over.
 *
 *     nothing ── started ── done             replayed from now on
 *                  │  ▲
 *                  │  └───── failed          run again by the next caller, with a higher number
 *                  └──────── failed, final   replayed from now on
 *
 * A record that says `started` while its line is free was left by an execution that has died, or was stopped for longer
 * than its ttl. Only an execution that has begun changes the record, by the version of its own last change. So it is
 * refused as soon as another one has begun after it.
 */
import { createHash } from 'node:crypto'
import type { AttemptName, StoredFailure } from '../../core/errors.ts'
import { thrownText } from '../../core/thrown.ts'

/** All states have these. */
interface CommonRecord extends AttemptName {
  /** The entry that began the execution: what two executions store is never the same. */
  readonly by: string
  readonly fingerprint?: string | undefined
  /** What the steps have answered, by name. In an object: JSON has no `undefined`, and a step may answer nothing. */
  readonly steps?: Readonly<Record<string, { readonly value?: unknown }>> | undefined
}

export interface StartedRecord extends CommonRecord {
  readonly state: 'started'
}

export interface DoneRecord extends CommonRecord {
  readonly state: 'done'
  readonly value: unknown
}

/** It is run again by the next caller. No larger than `started`, so that it has room where that had. */
export interface ThrownRecord extends CommonRecord {
  readonly state: 'failed'
  readonly final?: false
}

/** It is replayed, and not run again. */
export interface FailedRecord extends CommonRecord {
  readonly state: 'failed'
  readonly final: true
  readonly failure: StoredFailure
}

export type OnceRecord = StartedRecord | DoneRecord | ThrownRecord | FailedRecord

/** What is answered without another execution. */
export type SettledRecord = DoneRecord | FailedRecord

/** Whether it is answered from the record. */
export function isSettled(record: OnceRecord): record is SettledRecord {
  return record.state === 'done' || (record.state === 'failed' && record.final === true)
}

/**
 * The key of the line and of the record. Names and scopes cannot run into each other: a colon in them is escaped. So
 * the keys of two tenants are never the same, whatever the tenants choose. `name` is escaped already.
 */
export function recordKey(name: string, scope: string, key: string): string {
  if (typeof key !== 'string' || key === '')
    throw new TypeError(
      `the key of a request must be a string that is not empty; got ${key === '' ? "''" : typeof key}`,
    )
  return `${name}:${scope === '' ? '' : escapedName(scope)}:${key}`
}

/** A name or a scope, as keys have it. */
export function escapedName(text: string): string {
  return text.replaceAll('%', '%25').replaceAll(':', '%3A')
}

/**
 * 128 bits of what makes the request what it is. Objects are compared as JSON, and the order of their fields does not
 * matter: a client that retries may build its body anew.
 */
export function fingerprintOf(value: unknown): string | undefined {
  if (value === undefined) return undefined
  const bytes = typeof value === 'string' ? value : (bytesOf(value) ?? canonicalJson(value))
  return createHash('sha256').update(bytes).digest('base64url').slice(0, 22)
}

function bytesOf(value: unknown): Uint8Array | undefined {
  if (value instanceof ArrayBuffer) return new Uint8Array(value)
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : undefined
}

function canonicalJson(value: unknown): string {
  const sorted = (_: string, one: unknown): unknown => {
    if (typeof one !== 'object' || one === null || Array.isArray(one)) return one
    // JSON writes a Map, a form or a Blob as {}: requests that differ would have the same fingerprint.
    const tag = Object.prototype.toString.call(one)
    if (isHiding(one, tag)) throw new TypeError(`fingerprint must be bytes, a string or JSON; got ${tag}`)
    return Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
  }
  const text = JSON.stringify(value, sorted) as string | undefined
  if (text === undefined) throw new TypeError(`fingerprint must be bytes, a string or JSON; got ${typeof value}`)
  return text
}

/** Whether it has more than its fields. What is built in has a tag of its own, also where it is of another realm. */
function isHiding(value: object, tag: string): boolean {
  if (value instanceof Map || value instanceof Set || value instanceof ArrayBuffer) return true
  return tag !== '[object Object]' && Object.keys(value).length === 0 && !ArrayBuffer.isView(value)
}

/** Whether they are of one request. A fingerprint that was not given is not compared. */
export function sameRequest(a: string | undefined, b: string | undefined): boolean {
  return a === undefined || b === undefined || a === b
}

const LONGEST_MESSAGE = 1_000
const LARGEST_FIELDS_BYTES = 8_192

/** What is stored of an error. */
export function storedFailure(error: unknown): StoredFailure {
  const message = thrownText(error).slice(0, LONGEST_MESSAGE)
  if (!(error instanceof Error)) return { name: 'Error', message, fields: {} }
  return { name: thrownText(error.name).slice(0, LONGEST_MESSAGE), message, fields: storableFields(error) }
}

/** Fields that JSON cannot keep, or that are too large in all, are left out: the failure itself has to be stored. */
function storableFields(error: Error): Record<string, unknown> {
  const fields: Record<string, unknown> = {}
  let bytes = 0
  for (const [name, value] of Object.entries(error)) {
    const text = jsonOf(value)
    if (name === 'name' || name === 'message' || text === undefined) continue
    bytes += Buffer.byteLength(name) + Buffer.byteLength(text)
    if (bytes > LARGEST_FIELDS_BYTES) break
    fields[name] = JSON.parse(text)
  }
  return fields
}

function jsonOf(value: unknown): string | undefined {
  try {
    return JSON.stringify(value) as string | undefined
  } catch {
    return undefined
  }
}
