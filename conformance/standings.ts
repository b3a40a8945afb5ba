/**
 * Short words for what a contract case expects of an answer. Each throws, with the whole answer in the message, unless
 * it is so.
 */
import assert from 'node:assert/strict'
import type { Engine, GoneReason, Line, LineEntry, Standing } from '../src/core/engine.ts'

type Of<State extends Standing['state']> = Extract<Standing, { readonly state: State }>

function is<State extends Standing['state']>(standing: Standing | undefined, state: State): Of<State> {
  assert.equal(standing?.state, state, `expected ${state}, got ${shown(standing)}`)
  return standing as Of<State>
}

/** It is held, for no longer than its ttl. */
export function isHeld(standing: Standing | undefined, ttlMs: number = Number.POSITIVE_INFINITY): Of<'held'> {
  const held = is(standing, 'held')
  assert(held.heldForMs > 0 && held.heldForMs <= ttlMs, `held for ${held.heldForMs} ms with a ttl of ${ttlMs} ms`)
  return held
}

export function isWaiting(standing: Standing | undefined, ahead?: number): void {
  const waiting = is(standing, 'waiting')
  if (ahead !== undefined && waiting.ahead !== null) assert.equal(waiting.ahead, ahead, 'how many are ahead')
}

export function isBusy(standing: Standing | undefined): void {
  is(standing, 'busy')
}

/**
 * An engine that has forgotten why may say `unknown` for `expired`, never for `evicted`: an evicted waiter would come
 * back.
 */
export function isGone(standing: Standing | undefined, why?: GoneReason): void {
  const gone = is(standing, 'gone')
  if (why === 'evicted') assert.equal(gone.why, 'evicted')
  if (why === 'expired' || why === 'unknown') assert.notEqual(gone.why, 'evicted')
}

export function isFailed(standing: Standing | undefined): Error {
  return is(standing, 'failed').error
}

/** The token of a held standing, of an engine that has fencing. */
export function tokenOf(standing: Standing | undefined): bigint {
  const { token } = isHeld(standing)
  assert.equal(typeof token, 'bigint', 'a grant carries a token')
  return token as bigint
}

/** Who is in line, and how: `['held', 'waiting']`. */
export async function statesOf(engine: Engine, key: string): Promise<readonly LineEntry['state'][]> {
  const line = await engine.inspect(key)
  return line.entries.map(({ state }) => state)
}

/** That one entry of the line. */
export function entryOf(line: Line, { id }: { readonly id: string }): LineEntry {
  const entry = line.entries.find((one) => one.id === id)
  assert(entry !== undefined, `${id} is not in the line of ${line.key}`)
  return entry
}

function shown(standing: Standing | undefined): string {
  return standing === undefined
    ? 'nothing'
    : JSON.stringify(standing, (_, value: unknown) => (typeof value === 'bigint' ? `${value}n` : value))
}
