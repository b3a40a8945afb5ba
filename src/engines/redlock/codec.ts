/**
 * What the scripts in lua/ are given, and what they reply, in the types of quorum-server.ts.
 *
 * Arguments are a place for the name of the script, the number of keys (none: see lua/take.lua), and the words of ARGV.
 * A take or a leave goes to all servers at once, and its arguments are made once: servers whose keys have the same
 * names share one `RedlockScriptArguments`.
 */

import { type RedisNames, slotOf } from '../../clients/redis/names.ts'
import { EngineError, LineFullError } from '../../core/errors.ts'
import { type EngineCall, unexpectedAnswer } from '../../core/failed-call.ts'
import { callOf, ENGINE } from './errors.ts'
import type { RefusalSummary } from './quorum-decision.ts'
import type { LeaveRequest, RaiseRequest, RepairRequest, TakeReply, TakeRequest } from './quorum-server.ts'

/** As in lua/take.lua. */
export const LINE_BOUND = 10_000

/** Requests that are alike have one template. The numbers of templates are characters, from '!' (1) to '~' (94). */
const TEMPLATE_ONE = 33
const MOST_TEMPLATES = 94
const MODES = { try: 't', wait: 'w', renew: 'r' } as const

/** How many keys are remembered with their group. */
const REMEMBERED_GROUPS = 10_000
const groups = new Map<string, string>()

/**
 * Which counter a key has. It must be the same in every process and every version, for ever: it is the slot that
 * Cluster would put the key into.
 */
function groupOf(serverKey: string): string {
  const known = groups.get(serverKey)
  if (known !== undefined) return known
  if (groups.size >= REMEMBERED_GROUPS) groups.clear()
  const group = String(slotOf(serverKey))
  groups.set(serverKey, group)
  return group
}

export class RedlockScriptArguments {
  readonly #names: RedisNames
  readonly #engineId: string
  #lastTake: { readonly requests: readonly TakeRequest[]; readonly words: string[] | undefined } | undefined
  #lastLeave: { readonly requests: readonly LeaveRequest[]; readonly words: string[] } | undefined

  /** `engineId`: the id of this engine object. The name of its channel ends with it. */
  constructor(names: RedisNames, engineId: string) {
    this.#names = names
    this.#engineId = engineId
  }

  /** For lua/take.lua. Undefined: the requests have too many templates for one call. */
  take(requests: readonly TakeRequest[]): string[] | undefined {
    if (this.#lastTake?.requests !== requests) this.#lastTake = { requests, words: this.#take(requests) }
    return this.#lastTake.words
  }

  /** For lua/leave.lua. */
  leave(requests: readonly LeaveRequest[]): string[] {
    if (this.#lastLeave?.requests === requests) return this.#lastLeave.words
    let serverKeys = ''
    let ids = ''
    for (const { key, id } of requests) {
      serverKeys += `${this.#names.serverKey(key)}\0`
      ids += `${id} `
    }
    this.#lastLeave = { requests, words: ['', '0', serverKeys, ids, String(requests.length)] }
    return this.#lastLeave.words
  }

  /** For lua/undo.lua. */
  undo(requests: readonly LeaveRequest[]): string[] {
    const words = requests.flatMap(({ key, id, upToAttempt, keepWaiting }) => {
      const ttl = keepWaiting === undefined ? '' : String(keepWaiting.ttlMs)
      return [this.#names.serverKey(key), id, String(upToAttempt), ttl, keepWaiting?.holder ?? '']
    })
    return ['', '0', this.#engineId, ...words]
  }

  /** For lua/raise.lua. */
  raise(requests: readonly RaiseRequest[]): string[] {
    const words = requests.flatMap(({ key, id, to }) => {
      const serverKey = this.#names.serverKey(key)
      return [serverKey, id, String(to), groupOf(serverKey)]
    })
    return ['', '0', ...words]
  }

  /** For lua/repair.lua. */
  repair(requests: readonly RepairRequest[]): string[] {
    const words = requests.flatMap((request) => {
      const { key, id, attempt, token, currentNumber, notAfterMs, ttlMs, outlives, holder } = request
      const serverKey = this.#names.serverKey(key)
      return [
        ...[serverKey, id, String(attempt), groupOf(serverKey), String(token)],
        ...[currentNumber === undefined ? '' : String(currentNumber), String(Math.floor(notAfterMs)), String(ttlMs)],
        ...[outlives === true ? 'o' : 'a', holder],
      ]
    })
    return ['', '0', this.#engineId, ...words]
  }

  /** For lua/inspect.lua. */
  inspect(key: string): string[] {
    return ['', '0', this.#names.serverKey(key)]
  }

  /** For lua/evict.lua. */
  evict(key: string, id: string, how: 'expire' | 'now'): string[] {
    return ['', '0', this.#names.serverKey(key), id, how]
  }

  #take(requests: readonly TakeRequest[]): string[] | undefined {
    let serverKeys = ''
    let items = ''
    let templateOf = ''
    const templates: TakeRequest[] = []
    for (const request of requests) {
      const serverKey = this.#names.serverKey(request.key)
      serverKeys += `${serverKey}\0`
      items += `${request.id} ${request.attempt} ${groupOf(serverKey)} `
      let found = templates.findIndex((known) => isAlike(known, request))
      if (found < 0) found = templates.push(request) - 1
      if (found >= MOST_TEMPLATES) return undefined
      templateOf += String.fromCharCode(TEMPLATE_ONE + found)
    }
    const several = templates.length === 1 ? '' : templateOf
    const words = ['', '0', serverKeys, items, String(requests.length), this.#engineId, several]
    for (const { ttlMs, mode, outlives, holder } of templates)
      words.push(String(ttlMs), outlives === true ? 'o' : MODES[mode], holder)
    return words
  }
}

function isAlike(a: TakeRequest, b: TakeRequest): boolean {
  return a.ttlMs === b.ttlMs && a.mode === b.mode && a.holder === b.holder && a.outlives === b.outlives
}

/** What lua/take.lua replies. */
export function takeRepliesOf(reply: unknown, requests: readonly TakeRequest[]): readonly TakeReply[] {
  // Most often there is one, and every caller pays for this once for each server.
  const [first] = requests as readonly [TakeRequest]
  if (requests.length === 1) return [takeReplyOf(String(reply), first)]
  const words = String(reply).split(' ')
  if (words.length !== requests.length) throw wrongCount(callOf(first), words.length, requests.length)
  return requests.map((request, at) => takeReplyOf(words[at] as string, request))
}

/** The letters are explained in shared/standing-codes.ts. */
function takeReplyOf(word: string, request: TakeRequest): TakeReply {
  const number = Number(word)
  if (number > 0) return number
  const [letter, first = '', second = '', ahead, next, recheckMs] = word.split(':')
  switch (letter) {
    case 't':
      return {
        why: 'taken',
        by: first,
        stranger: second === '1',
        ahead: Number(ahead),
        next: next === '1',
        recheckMs: Number(recheckMs),
      }
    case 'u':
      return { why: 'missing', nowMs: Number(first) }
    case 'e':
      return { why: 'evicted' }
    case 'f':
      return { why: 'unusable', kind: 'full', detail: '' }
    case 'x':
      return { why: 'unusable', kind: first, detail: second }
    default:
      throw unexpectedAnswer(
        ENGINE,
        callOf(request),
        `the server answered ${JSON.stringify(word)}, which is neither a number nor a refusal`,
      )
  }
}

/** What lua/raise.lua replies. */
export function numbersOf(reply: unknown, count: number): readonly number[] {
  const numbers = String(reply).split(' ').map(Number)
  if (numbers.length !== count) throw wrongCount('enter', numbers.length, count)
  if (numbers.some((number) => !Number.isSafeInteger(number)))
    throw unexpectedAnswer(
      ENGINE,
      'enter',
      `the server answered ${JSON.stringify(reply)}, which are not all whole numbers`,
    )
  return numbers
}

/** What lua/leave.lua and lua/undo.lua reply: whether each entry was there. */
export function leaveAnswersOf(reply: unknown, count: number): readonly boolean[] {
  const digits = String(reply)
  if (digits.length !== count) throw wrongCount('leave', digits.length, count)
  const were: boolean[] = []
  for (let at = 0; at < count; at += 1) were.push(digits[at] === '1')
  return were
}

/** What one server stores at a key, and who stands in line for it. */
export interface ServerInspection {
  /** The type of what is stored: `string` for a lock, `none` where there is nothing. */
  readonly type: string
  readonly value: string
  readonly remainingMs: number
  readonly waiters: readonly { readonly id: string; readonly record: string; readonly remainingMs: number }[]
}

/** What lua/inspect.lua replies. */
export function inspectionOf(reply: unknown): ServerInspection {
  const [type = '', value = '', remainingMs, ...rows] = (reply as readonly unknown[]).map(String)
  const waiters = []
  for (let at = 0; at + 2 < rows.length; at += 3) {
    const [id = '', record = '', left] = rows.slice(at, at + 3)
    waiters.push({ id, record, remainingMs: Number(left) })
  }
  return { type, value, remainingMs: Number(remainingMs), waiters }
}

/** The parts of a value that is ours; undefined for that of a stranger. lua/common.lua says what it looks like. */
export function readValue(
  value: string,
): { readonly id: string; readonly number: string; readonly ttlMs: number; readonly holder: string } | undefined {
  const found = /^hfr1:([^:]*):(\d+) \d+ \w (\d+) \S* (.*)$/s.exec(value)
  if (found === null) return undefined
  const [, id = '', number = '', ttl, holder = ''] = found
  return { id, number, ttlMs: Number(ttl), holder }
}

/** The parts of what is stored of a waiter. */
export function readWaiter(record: string): { readonly ttlMs: number; readonly holder: string } {
  const [, ttl, holder = ''] = /^\d+ (\d+) \S* (.*)$/s.exec(record) ?? []
  return { ttlMs: Number(ttl), holder }
}

/** On a majority, what is at the key is not a lock, or the line is full. */
export function unusableKey(key: string, found: RefusalSummary['unusable']): EngineError | LineFullError {
  const lasting = { outcome: 'not-applied', transient: false } as const
  const { kind = 'type', detail = '' } = found ?? {}
  if (kind === 'full') return new LineFullError(key, LINE_BOUND)
  if (kind === 'type')
    return new EngineError(ENGINE, `at '${key}' is a ${detail}, not a lock; use another prefix`, lasting)
  if (kind === 'version')
    return new EngineError(ENGINE, `'${key}' was written by a newer Holdfast (format ${detail})`, lasting)
  return new EngineError(
    ENGINE,
    `at '${key}' is a string without expiry that another program has set: a waiter could not wait for its end`,
    lasting,
  )
}

function wrongCount(call: EngineCall, got: number, wanted: number): EngineError {
  return unexpectedAnswer(ENGINE, call, `the answer has ${got} entries instead of ${wanted}`)
}
