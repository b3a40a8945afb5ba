/**
 * The verbs as calls: by a plain statement, if that will do, and everything else by a procedure. A call goes around
 * lines that another transaction has locked for good.
 */

import type { MysqlStatement, ResultRows, StatementResult } from '../../clients/mysql/wire.ts'
import { systemChance } from '../../core/clock.ts'
import type { Claim, News, Place } from '../../core/engine.ts'
import type { CallWay } from './batch-parts.ts'
import { codesOf, LEFT_EMPTY, type PackedBatch, packClaims, packIds, packPlaces, replyOf } from './codec.ts'
import { asDoubtful, isReadOnlyTransaction, isRowLocked, isSelfUndone, isSyntaxError } from './errors.ts'
import type { MysqlCaller, MysqlCallOptions, MysqlProcedure } from './mysql-caller.ts'
import {
  freeAllStatement,
  freeStatement,
  makeAllStatement,
  makeStatement,
  ranks,
  renewStatement,
  takeAllStatement,
  takeStatement,
} from './plain-statements.ts'

type Item = Pick<Place, 'key' | 'id'>

/** What a plain statement came to. Its LAST_INSERT_ID is a token; 0: nothing was entered or renewed. */
interface PlainResult extends StatementResult {
  /** Another transaction has one of the lines, and kept it for longer than we waited. */
  readonly locked?: boolean
}

const UNTRIED: PlainResult = { lastInsertId: 0n, changed: 0 }

export class ProcedureCalls {
  readonly #caller: MysqlCaller
  readonly #engineId: string
  readonly #hear: (news: News) => void
  /** Until it turns out not to be. */
  #isMariadb = true

  constructor(caller: MysqlCaller, engineId: string, hear: (news: News) => void) {
    this.#caller = caller
    this.#engineId = engineId
    this.#hear = hear
  }

  /**
   * One code for each claim, as in sql/enter.sql. If a statement has entered some of the claims, and not all, the
   * procedure finds them there and renews them.
   */
  async enter(claims: readonly Claim[], way: CallWay, options: MysqlCallOptions): Promise<readonly string[]> {
    const plain = way === 'call' ? UNTRIED : await this.#plainly(() => this.#enterStatement(claims, way), options)
    if (plain.lastInsertId !== 0n && plain.changed >= claims.length) {
      return claims.length === 1
        ? [String(plain.lastInsertId)]
        : ranks(claims).map((rank) => String(plain.lastInsertId + BigInt(rank)))
    }
    return await this.#codes('enter', packClaims(claims), options, plain)
  }

  /** As in sql/renew.sql. */
  async renew(places: readonly Place[], way: CallWay, options: MysqlCallOptions): Promise<readonly string[]> {
    const [first] = places
    const alone = way === 'alone' && places.length === 1 && first !== undefined
    const plain = alone ? await this.#plainly(() => renewStatement(first), options) : UNTRIED
    if (plain.lastInsertId !== 0n) return [String(plain.lastInsertId)]
    return await this.#codes('renew', packPlaces(places), options, plain)
  }

  /** As in sql/leave.sql. */
  async leave(places: readonly Item[], way: CallWay): Promise<readonly string[]> {
    const [first] = places
    if (way === 'call' || first === undefined) return await this.#codes('leave', packIds(places), {}, UNTRIED)
    const plain = await this.#plainly(
      () => (places.length === 1 ? freeStatement(first) : freeAllStatement(places, freshNumber())),
      {},
    )
    if (plain.changed === places.length) return places.map(() => LEFT_EMPTY)
    if (plain.changed > 0) return ranks(places).map((rank) => (rank <= plain.changed ? LEFT_EMPTY : '0'))
    return await this.#codes('leave', packIds(places), {}, plain)
  }

  /** What a procedure answers; the news that come with it are heard. */
  async call(
    procedure: MysqlProcedure,
    args: readonly string[],
    options?: MysqlCallOptions,
  ): Promise<{ readonly text: string; readonly sets: readonly ResultRows[] }> {
    const sets = await this.#caller.call(procedure, args, options)
    const { text, news } = replyOf(procedure, sets)
    // Later, as news from a server would come: never from inside a call of the core.
    if (news.length > 0) queueMicrotask(() => news.forEach(this.#hear))
    return { text, sets }
  }

  #enterStatement(claims: readonly Claim[], way: CallWay): MysqlStatement {
    const [first] = claims as readonly [Claim]
    if (claims.length === 1)
      return way === 'take' ? takeStatement(first, this.#engineId) : makeStatement(first, this.#engineId)
    return way === 'take' ? takeAllStatement(claims, this.#engineId) : makeAllStatement(claims, this.#engineId)
  }

  /**
   * One code for each item of a batch, in the caller's order. A row that another transaction has locked for good fails
   * the whole batch. Then the procedure is called once more, and this time does not wait: it leaves out the locked
   * lines, and says so of their items.
   */
  async #codes(
    procedure: MysqlProcedure,
    { args, order }: PackedBatch,
    options: MysqlCallOptions,
    plain: PlainResult,
  ): Promise<string[]> {
    const call = async (patient: boolean): Promise<string[]> => {
      const all = [...args, `x'${this.#engineId}'`, patient ? 'TRUE' : 'FALSE']
      const { text, sets } = await this.call(procedure, all, options)
      return codesOf(procedure, text, sets, order)
    }
    try {
      if (plain.locked === true) return await call(false)
      return await call(true).catch(async (error: unknown) => {
        if (!isRowLocked(error)) throw error
        return await call(false)
      })
    } catch (error) {
      throw plain.lastInsertId === 0n ? error : asDoubtful(error)
    }
  }

  /** Where a statement finds something else than it was made for, it changes nothing, and the procedure is next. */
  async #plainly(statement: () => MysqlStatement, options: MysqlCallOptions): Promise<PlainResult> {
    try {
      return await this.#caller.change(statement, this.#isMariadb, options)
    } catch (error) {
      if (isReadOnlyTransaction(error) || isSelfUndone(error)) return UNTRIED
      if (isRowLocked(error)) return { ...UNTRIED, locked: true }
      if (!this.#isMariadb || !isSyntaxError(error)) throw error
      this.#isMariadb = false
      return await this.#plainly(statement, options)
    }
  }
}

/** A number that no other statement has had, as good as certainly. */
function freshNumber(): number {
  return Math.floor(systemChance.fraction() * 2 ** 52)
}
