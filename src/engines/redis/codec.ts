/**
 * What the scripts are given, what they answer, and what they publish, in the words of the contract: the words of a
 * call, the arguments of `enter` and `renew`, the answers to them and to `leave`, and the messages to an engine. The
 * letters of answers are explained in shared/standing-codes.ts, what stands behind them in lua/place.lua.
 */
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import type { Claim, News, Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import { type EngineCall, unexpectedAnswer } from '../../core/failed-call.ts'
import type { Recheck } from '../shared/recheck-timer.ts'
import { isWaiting, settledStanding, waitingStanding } from '../shared/standing-codes.ts'
import { siblings } from './names.ts'

/** As in lua/enter.lua. */
export const LINE_BOUND = 10_000

// ---- words ----

/** An item of a call: the key of a line, and an entry in it. */
export interface CallItem {
  readonly key: string
  readonly id: string
}

/**
 * All words of a call: a place for the name of the script, the number of declared keys, those keys, the two lists of
 * lua/keys.lua, and the arguments of the script. `counter` is a key that is declared in any case.
 */
export function callWords(
  names: RedisNames,
  items: readonly CallItem[],
  args: readonly string[],
  counter?: string,
): string[] {
  const words = counter === undefined ? ['', '0'] : ['', '1', counter]
  const list = keyList(names, items, words)
  words.push(list, idsOf(items), String(items.length), ...args)
  return words
}

/**
 * The list of server keys for lua/keys.lua. In Cluster, where it is empty, the keys are added to `words`, and their
 * number is raised.
 */
export function keyList(names: RedisNames, items: readonly CallItem[], words: string[]): string {
  if (names.cluster) {
    for (const { key } of items) words.push(names.declaredKey(key), ...siblings(names.serverKey(key)))
    words[1] = String(words.length - 2)
    return ''
  }
  let list = names.serverKey(items[0]?.key ?? '')
  for (let at = 1; at < items.length; at += 1) list += `\0${names.serverKey(items[at]?.key as string)}`
  return list
}

export function idsOf(items: readonly CallItem[]): string {
  let ids = items[0]?.id ?? ''
  for (let at = 1; at < items.length; at += 1) ids += ` ${items[at]?.id}`
  return ids
}

// ---- arguments ----
//
// The arguments that follow the words of every call. What many items have in common is said once, as a template: claims
// of one ttl, weight, limit and holder have the same one, and the usual batch has one template.

/** The numbers of templates are characters, from '!' (1) to '~' (94). */
const MOST_TEMPLATES = 94
const TEMPLATE_ONE = 33

/** What claims of one template have in common. */
type ClaimTemplate = Pick<Claim, 'ttlMs' | 'wait' | 'weight' | 'limit' | 'holder'>

/** Makes the arguments of lua/enter.lua. */
export class EnterArguments {
  readonly #engineId: string
  /** The template of the last batch that had only one, and its arguments: the next batch usually has the same. */
  #last: { readonly template: ClaimTemplate; readonly args: readonly string[] } | undefined

  constructor(engineId: string) {
    this.#engineId = engineId
  }

  /** Undefined: these claims have too many templates for one call; make it two. */
  of(claims: readonly Claim[]): readonly string[] | undefined {
    const known = this.#last
    if (known !== undefined && claims.every((claim) => sameTemplate(claim, known.template))) return known.args
    const args = templateArguments(claims, sameTemplate, (some, { ttlMs, wait, weight, limit, holder }) => {
      some.push(String(ttlMs), `${wait ? 'w' : 't'} a ${weight} ${limit} ${ttlMs} ${this.#engineId} ${holder}`)
    })
    if (args?.[0] === '') {
      const { ttlMs, wait, weight, limit, holder } = claims[0] as Claim
      this.#last = { template: { ttlMs, wait, weight, limit, holder }, args }
    }
    return args
  }
}

/** The arguments of lua/renew.lua. Undefined: these places have too many templates for one call. */
export function renewArguments(places: readonly Place[]): readonly string[] | undefined {
  return templateArguments(places, sameTtl, (args, place) => args.push(ttlArgument(place)))
}

/** For how long a place is renewed, as the scripts read it: with a + if it is to outlive this process. */
export function ttlArgument({ ttlMs, outlives }: Place): string {
  return outlives === true ? `+${ttlMs}` : String(ttlMs)
}

function sameTemplate(a: ClaimTemplate, b: ClaimTemplate): boolean {
  return (
    a.ttlMs === b.ttlMs && a.wait === b.wait && a.weight === b.weight && a.limit === b.limit && a.holder === b.holder
  )
}

function sameTtl(a: Place, b: Place): boolean {
  return a.ttlMs === b.ttlMs && a.outlives === b.outlives
}

/** Which template each item has ('' if there is only one), and then each template. */
function templateArguments<Item>(
  items: readonly Item[],
  same: (a: Item, b: Item) => boolean,
  describe: (args: string[], item: Item) => void,
): string[] | undefined {
  const [first] = items as readonly [Item]
  if (items.every((item) => same(item, first))) {
    const args = ['']
    describe(args, first)
    return args
  }
  const templates = [first]
  let templateOf = ''
  for (const item of items) {
    let found = templates.findIndex((known) => same(item, known))
    if (found < 0) found = templates.push(item) - 1
    if (found >= MOST_TEMPLATES) return undefined
    templateOf += String.fromCharCode(TEMPLATE_ONE + found)
  }
  const args = [templateOf]
  for (const item of templates) describe(args, item)
  return args
}

// ---- answers ----

/** Is told what the answers say beside the standings. */
export interface StandingListener {
  /** An entry waits. */
  waiting(recheck: Recheck): void
  /** An entry does not wait, or not any more. Answers whether it was known to wait until now. */
  notWaiting(id: string): boolean
  /** An entry that waited holds, and no message has said so. */
  grantUnheard(): void
  /** At a server key is a string of a stranger that never expires. */
  endless(error: EngineError): void
}

/** Reads the answers to `enter` and `renew`. */
export class StandingReader {
  readonly #names: RedisNames
  readonly #listener: StandingListener

  constructor(names: RedisNames, listener: StandingListener) {
    this.#names = names
    this.#listener = listener
  }

  entered(reply: unknown, claims: readonly Claim[]): Standing[] {
    if (Array.isArray(reply)) {
      const extras = new Extras('enter', reply, 2)
      return this.#read(String(reply[1]), extras, claims, Number(reply[0]))
    }
    // No token is 0, and `Number(null)` is: so 0 is no grant.
    const firstToken = Number(reply)
    if (typeof reply === 'boolean' || !(firstToken > 0))
      throw unexpectedAnswer(ENGINE, 'enter', `the answer is ${JSON.stringify(reply)}`)
    const standings: Standing[] = []
    for (const { id, ttlMs } of claims) {
      this.#listener.notWaiting(id)
      standings.push(held('enter', firstToken + standings.length, ttlMs))
    }
    return standings
  }

  renewed(reply: unknown, places: readonly Place[]): Standing[] {
    if (!Array.isArray(reply)) throw unexpectedAnswer(ENGINE, 'renew', `the answer is ${JSON.stringify(reply)}`)
    const [codes] = reply as readonly unknown[]
    return this.#read(String(codes), new Extras('renew', reply, 1), places, 0)
  }

  #read(codes: string, extras: Extras, items: readonly Place[], firstToken: number): Standing[] {
    const { call } = extras
    checkCount(call, codes, items.length)
    return items.map((item, index): Standing => {
      const code = codes[index]
      if (isWaiting(code)) {
        const ahead = extras.next()
        return waitingStanding(code, item, ahead, Number(extras.next()), this.#listener.waiting)
      }
      const waited = this.#listener.notWaiting(item.id)
      if (code === 'h') return held(call, firstToken + index, item.ttlMs)
      if (code === 'H') {
        if (waited) this.#listener.grantUnheard()
        return held(call, Number(extras.next()), item.ttlMs)
      }
      if (code === 'x') return { state: 'failed', error: this.#unusable(item.key, extras.next(), extras.next()) }
      const settled = settledStanding(code, item.key, () => extras.next(), LINE_BOUND)
      if (settled === undefined)
        throw unexpectedAnswer(ENGINE, call, `the answer has the unknown letter ${JSON.stringify(code)}`)
      return settled
    })
  }

  #unusable(key: string, kind: string, detail: string): EngineError {
    const error = unusable(this.#names.serverKey(key), kind, detail)
    if (kind === 'forever') this.#listener.endless(error)
    return error
  }
}

/** A token is a time in microseconds: a number has it exactly for another two centuries. */
function held(call: EngineCall, token: number, heldForMs: number): Standing {
  if (!Number.isSafeInteger(token) || token < 1)
    throw unexpectedAnswer(ENGINE, call, `the answer has the token ${token}`)
  return { state: 'held', token: BigInt(token), heldForMs }
}

/** What follows the letters in an answer, taken one by one. */
class Extras {
  readonly call: EngineCall
  readonly #reply: readonly unknown[]
  #at: number

  constructor(call: EngineCall, reply: unknown, from: number) {
    this.call = call
    this.#reply = reply as readonly unknown[]
    this.#at = from
  }

  next(): string {
    const length = this.#reply.length
    if (this.#at >= length)
      throw unexpectedAnswer(
        ENGINE,
        this.call,
        `the answer ends after ${length} entries, though its letters ask for more`,
      )
    this.#at += 1
    return String(this.#reply[this.#at - 1])
  }
}

/** Whether each entry was in its line. */
export function leaveAnswersOf(reply: unknown, count: number): boolean[] {
  return presencesOf('leave', reply, count)
}

/** Whether each line was observed before. */
export function watchAnswersOf(reply: unknown, count: number): boolean[] {
  return presencesOf('watch', reply, count)
}

function presencesOf(call: EngineCall, reply: unknown, count: number): boolean[] {
  if (typeof reply !== 'string' && typeof reply !== 'number')
    throw unexpectedAnswer(ENGINE, call, `the answer is ${JSON.stringify(reply)}`)
  const codes = String(reply)
  checkCount(call, codes, count)
  const were: boolean[] = []
  for (let at = 0; at < count; at += 1) were.push(codes[at] === '1')
  return were
}

function checkCount(call: EngineCall, codes: string, count: number): void {
  if (codes.length === count) return
  throw unexpectedAnswer(
    ENGINE,
    call,
    `the answer has ${codes.length} letters instead of ${count}: ${JSON.stringify(codes)}`,
  )
}

/** What is at that key is not a lock whose end could be waited for. `kind` and `detail` are those of lua/place.lua. */
export function unusable(serverKey: string, kind: string, detail: string): EngineError {
  return new EngineError(ENGINE, `'${serverKey}' ${whyUnusable(kind, detail)}`, {
    outcome: 'not-applied',
    transient: false,
  })
}

function whyUnusable(kind: string, detail: string): string {
  if (kind === 'type') return `is a ${detail}, not a lock; use another prefix`
  if (kind === 'version') return `was written by a newer Holdfast (format ${detail}), or is no lock`
  return `is a ${detail} without expiry that another program has set: its end cannot be waited for`
}

// ---- messages ----
//
// What the scripts send to the channel of an engine: which waiter holds now, which entry was evicted, which waiter
// should look again, and which line an observer should look at. Messages are separated by NUL; each is
//
//     <id> <token, or - if it was evicted> <for how long it is held (ms)> <server key>
//     <id> ? 0 <server key>
//     ! - 0 <server key>
//
// Any client of the server may publish to the channel: a message that is none of these is ignored.

const TOKEN_AND_MS = /^\d+ \d+$/

/** Is told what messages say. */
export interface MessageListener {
  news(news: News): void
  /** A line that an observer watches may have changed. */
  changed(key: string): void
}

export function readMessages(text: string, names: RedisNames, listener: MessageListener): void {
  if (text.includes('\0')) for (const message of text.split('\0')) readMessage(message, names, listener)
  else readMessage(text, names, listener)
}

/** By hand, and not by a regular expression, because a waiter waits for just this. */
function readMessage(message: string, names: RedisNames, listener: MessageListener): void {
  const afterId = message.indexOf(' ')
  const afterToken = message.indexOf(' ', afterId + 1)
  const afterMs = message.indexOf(' ', afterToken + 1)
  if (afterId < 1 || afterToken < 0 || afterMs < 0) return
  const id = message.slice(0, afterId)
  const token = message.slice(afterId + 1, afterToken)
  const key = names.userKey(message.slice(afterMs + 1))
  if (id === '!') listener.changed(key)
  else if (token === '?') listener.news({ key, id })
  else if (token === '-') listener.news({ key, id, standing: { state: 'gone', why: 'evicted' } })
  else if (TOKEN_AND_MS.test(message.slice(afterId + 1, afterMs))) {
    const heldForMs = Number(message.slice(afterToken + 1, afterMs))
    listener.news({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs } })
  }
}
