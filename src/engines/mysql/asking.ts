/**
 * How lines are asked for: by a statement of its own, if that will do; everything else by a procedure, and around lines
 * that somebody has locked for good.
 */

import { doubtful, isForeign, isLocked, isReadOnlySession, isRefused } from '../../clients/mysql/errors.ts'
import type { Rows, Statement, Told } from '../../clients/mysql/wire.ts'
import { systemChance } from '../../core/clock.ts'
import type { Claim, News, Place } from '../../core/engine.ts'
import type { Caller, CallOptions, Procedure } from './caller.ts'
import type { Way } from './parts.ts'
import { ALONE, codesOf, replyOf } from './replies.ts'
import { type Packed, packClaims, packIds, packPlaces } from './requests.ts'
import { freeAllStatement, makeAllStatement, ranks, takeAllStatement } from './several.ts'
import { freeStatement, makeStatement, renewStatement, takeStatement } from './single.ts'

type Item = Pick<Place, 'key' | 'id'>

/** What a statement of its own came to. Its number is a token; 0: nothing was entered or renewed. */
interface Plain extends Told {
  /** Somebody has one of the lines, and kept it for longer than we waited. */
  readonly locked?: boolean
}

const UNTRIED: Plain = { number: 0n, changed: 0 }

export class Asking {
  readonly #caller: Caller
  readonly #client: string
  readonly #hear: (news: News) => void
  /** Until it turns out not to be. */
  #isMariadb = true

  /** `client`: our name in the tables. */
  constructor(caller: Caller, client: string, hear: (news: News) => void) {
    this.#caller = caller
    this.#client = client
    this.#hear = hear
  }

  /**
   * One code for each claim, as in sql/enter.sql. What a statement has entered already, if not all, the procedure finds
   * there, and renews.
   */
  async enter(claims: readonly Claim[], way: Way, options: CallOptions): Promise<readonly string[]> {
    const plain = way === 'call' ? UNTRIED : await this.#plainly(() => this.#entering(claims, way), options)
    if (plain.number !== 0n && plain.changed >= claims.length) {
      return claims.length === 1
        ? [String(plain.number)]
        : ranks(claims).map((rank) => String(plain.number + BigInt(rank)))
    }
    return await this.#codes('enter', packClaims(claims), options, plain)
  }

  /** As in sql/renew.sql. */
  async renew(places: readonly Place[], way: Way, options: CallOptions): Promise<readonly string[]> {
    const [first] = places
    const alone = way === 'alone' && places.length === 1 && first !== undefined
    const plain = alone ? await this.#plainly(() => renewStatement(first), options) : UNTRIED
    if (plain.number !== 0n) return [String(plain.number)]
    return await this.#codes('renew', packPlaces(places), options, plain)
  }

  /** As in sql/leave.sql. */
  async leave(places: readonly Item[], way: Way): Promise<readonly string[]> {
    const [first] = places
    if (way === 'call' || first === undefined) return await this.#codes('leave', packIds(places), {}, UNTRIED)
    const plain = await this.#plainly(
      () => (places.length === 1 ? freeStatement(first) : freeAllStatement(places, someNumber())),
      {},
    )
    if (plain.changed === places.length) return places.map(() => ALONE)
    if (plain.changed > 0) return ranks(places).map((rank) => (rank <= plain.changed ? ALONE : '0'))
    return await this.#codes('leave', packIds(places), {}, plain)
  }

  /** What a procedure answers; the news that come with it are heard. */
  async call(
    procedure: Procedure,
    args: readonly string[],
    options?: CallOptions,
  ): Promise<{ readonly text: string; readonly sets: readonly Rows[] }> {
    const sets = await this.#caller.call(procedure, args, options)
    const { text, news } = replyOf(sets)
    // Later, as from a server: never from inside somebody else's call.
    if (news.length > 0) queueMicrotask(() => news.forEach(this.#hear))
    return { text, sets }
  }

  #entering(claims: readonly Claim[], way: Way): Statement {
    const [first] = claims as readonly [Claim]
    if (claims.length === 1)
      return way === 'take' ? takeStatement(first, this.#client) : makeStatement(first, this.#client)
    return way === 'take' ? takeAllStatement(claims, this.#client) : makeAllStatement(claims, this.#client)
  }

  /**
   * One code for each item of a batch, in the caller's order. A row that somebody has locked for good fails the whole
   * batch; then it is asked once more, and this time nobody waits: locked lines are left out, and their items are told
   * so.
   */
  async #codes(procedure: Procedure, { args, order }: Packed, options: CallOptions, plain: Plain): Promise<string[]> {
    const ask = async (patient: boolean): Promise<string[]> => {
      const { text, sets } = await this.call(
        procedure,
        [...args, `x'${this.#client}'`, patient ? 'TRUE' : 'FALSE'],
        options,
      )
      return codesOf(text, sets, order)
    }
    try {
      if (plain.locked === true) return await ask(false)
      return await ask(true).catch(async (error: unknown) => {
        if (!isLocked(error)) throw error
        return await ask(false)
      })
    } catch (error) {
      throw plain.number === 0n ? error : doubtful(error)
    }
  }

  /** Nothing has changed where it is not what it was meant for. */
  async #plainly(statement: () => Statement, options: CallOptions): Promise<Plain> {
    try {
      return await this.#caller.tell(statement, this.#isMariadb, options)
    } catch (error) {
      if (isReadOnlySession(error) || isRefused(error)) return UNTRIED
      if (isLocked(error)) return { ...UNTRIED, locked: true }
      if (!this.#isMariadb || !isForeign(error)) throw error
      this.#isMariadb = false
      return await this.#plainly(statement, options)
    }
  }
}

/** As good as none that was there before. */
function someNumber(): number {
  return Math.floor(systemChance.fraction() * 2 ** 52)
}
