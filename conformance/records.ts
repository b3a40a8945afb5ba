/** Short words for what a case of a store asks, and expects of an answer. */
import assert from 'node:assert/strict'
import type { Change, Got, Put, Store, Stored, When } from '../src/core/store.ts'

type PutState<State extends Put['state']> = Extract<Put, { readonly state: State }>

/** A change that stores a text for good, unless told otherwise. */
export function putting(key: string, text: string, when: When = {}, more: Partial<Change> = {}): Change {
  return { key, value: Buffer.from(text), ttlMs: null, when, ...more }
}

export function removing(key: string, when: When = {}): Change {
  return { key, value: null, ttlMs: null, when }
}

/** Make one change. */
export async function putOne(store: Store, change: Change): Promise<Put> {
  const puts = await store.put([change])
  assert.equal(puts.length, 1, 'one answer to one change')
  return puts[0] as Put
}

/** What is stored under one key. */
export async function read(store: Store, key: string): Promise<Stored> {
  const [got] = await store.get([key])
  return isRead(got)
}

/** The text that is stored; null: none is. */
export async function textOf(store: Store, key: string): Promise<string | null> {
  return toText(await read(store, key))
}

export function toText({ value }: Pick<Stored, 'value'>): string | null {
  return value === null ? null : Buffer.from(value).toString()
}

export function isRead(got: Got | undefined): Stored {
  assert.equal(got?.state, 'read', `expected a record, got ${shown(got)}`)
  return (got as Extract<Got, { readonly state: 'read' }>).stored
}

export function isStored(put: Put | undefined): PutState<'stored'> {
  assert.equal(put?.state, 'stored', `expected stored, got ${shown(put)}`)
  return put as PutState<'stored'>
}

/** It was refused by that condition, and answers what is stored. */
export function isRefused(put: Put | undefined, by: keyof When, text: string | null): PutState<'refused'> {
  assert.equal(put?.state, 'refused', `expected refused by ${by}, got ${shown(put)}`)
  const refused = put as PutState<'refused'>
  assert.equal(refused.by, by, 'the condition that was not met')
  assert.equal(toText(refused.stored), text, 'what a refused change is told to be stored')
  return refused
}

function shown(answer: unknown): string {
  return answer === undefined
    ? 'nothing'
    : JSON.stringify(answer, (_, value: unknown) => (typeof value === 'bigint' ? `${value}n` : value))
}
