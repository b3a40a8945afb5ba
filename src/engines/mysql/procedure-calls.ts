/**
 * The verbs as calls: by a plain statement, if that will do, and everything else by a procedure. A call goes around
 * lines that another transaction has locked for good.
 */

import { isMissing } from '../../clients/mysql/errors.ts'
import type { MysqlStatement, MysqlWire, ResultRows, StatementResult } from '../../clients/mysql/wire.ts'
import { type CallDeadline, CallLimits } from '../../clients/shared/call-limits.ts'
import { type Clock, systemChance } from '../../core/clock.ts'
import type { Claim, EntryName, News, Place } from '../../core/engine.ts'
import { calledFor, type EngineCall, failingAs, withOutcome } from '../../core/failed-call.ts'
import {
  type BatchArguments,
  codesOf,
  enterArguments,
  LEFT_EMPTY,
  leaveArguments,
  renewArguments,
  replyOf,
} from './codec.ts'
import {
  asEngineError,
  isCrowded,
  isDeadlock,
  isReadOnlyTransaction,
  isRowLocked,
  isSelfUndone,
  isSyntaxError,
} from './errors.ts'
import { firstUse } from './migration.ts'
import { type MysqlNames, renamed } from './names.ts'
import {
  type CallWay,
  freeAllStatement,
  freeStatement,
  makeAllStatement,
  makeStatement,
  ranks,
  renewStatement,
  takeAllStatement,
  takeStatement,
} from './plain-statements.ts'

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
  /** Taken for granted until the server refuses what only MariaDB knows. */
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
    const plain =
      way === 'call' ? UNTRIED : await this.#plainly('enter', () => this.#enterStatement(claims, way), options)
    if (plain.lastInsertId !== 0n && plain.changed >= claims.length) {
      return claims.length === 1
        ? [String(plain.lastInsertId)]
        : ranks(claims).map((rank) => String(plain.lastInsertId + BigInt(rank)))
    }
    return await this.#codes('enter', enterArguments(claims), options, plain)
  }

  /** As in sql/renew.sql. */
  async renew(places: readonly Place[], way: CallWay, options: MysqlCallOptions): Promise<readonly string[]> {
    const [first] = places
    const alone = way === 'alone' && places.length === 1 && first !== undefined
    const plain = alone ? await this.#plainly('renew', () => renewStatement(first), options) : UNTRIED
    if (plain.lastInsertId !== 0n) return [String(plain.lastInsertId)]
    return await this.#codes('renew', renewArguments(places), options, plain)
  }

  /** As in sql/leave.sql. */
  async leave(places: readonly EntryName[], way: CallWay): Promise<readonly string[]> {
    const [first] = places
    if (way === 'call' || first === undefined) return await this.#codes('leave', leaveArguments(places), {}, UNTRIED)
    const plain = await this.#plainly(
      'leave',
      () => (places.length === 1 ? freeStatement(first) : freeAllStatement(places, freshNumber())),
      {},
    )
    if (plain.changed === places.length) return places.map(() => LEFT_EMPTY)
    if (plain.changed > 0) return ranks(places).map((rank) => (rank <= plain.changed ? LEFT_EMPTY : '0'))
    return await this.#codes('leave', leaveArguments(places), {}, plain)
  }

  /** What a procedure answers; the news that come with it are heard. */
  async call(
    procedure: MysqlProcedure,
    args: readonly string[],
    options?: MysqlCallOptions,
  ): Promise<{ readonly text: string; readonly sets: readonly ResultRows[] }> {
    const sets = await this.#caller.call(procedure, args, options)
    const { text, news } = replyOf(calledFor(CALLS, procedure), sets)
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
    { args, order }: BatchArguments,
    options: MysqlCallOptions,
    plain: PlainResult,
  ): Promise<string[]> {
    const call = async (patient: boolean): Promise<string[]> => {
      const all = [...args, `x'${this.#engineId}'`, patient ? 'TRUE' : 'FALSE']
      const { text, sets } = await this.call(procedure, all, options)
      return codesOf(calledFor(CALLS, procedure), text, sets, order)
    }
    try {
      if (plain.locked === true) return await call(false)
      return await call(true).catch(async (error: unknown) => {
        if (!isRowLocked(error)) throw error
        return await call(false)
      })
    } catch (error) {
      throw plain.lastInsertId === 0n
        ? error
        : withOutcome(asEngineError(calledFor(CALLS, procedure), error), 'unknown')
    }
  }

  /**
   * What a plain statement did. `UNTRIED`: it changed nothing, because a line is not as the statement expects it, or
   * because it was refused. Then the procedure is called.
   */
  async #plainly(verb: EngineCall, statement: () => MysqlStatement, options: MysqlCallOptions): Promise<PlainResult> {
    try {
      return await this.#caller.change(verb, statement, this.#isMariadb, options)
    } catch (error) {
      if (isReadOnlyTransaction(error) || isSelfUndone(error)) return UNTRIED
      if (isRowLocked(error)) return { ...UNTRIED, locked: true }
      if (!this.#isMariadb || !isSyntaxError(error)) throw error
      this.#isMariadb = false
      return await this.#plainly(verb, statement, options)
    }
  }
}

/** A random number: practically never one that an earlier statement has left in LAST_INSERT_ID. */
function freshNumber(): number {
  return Math.floor(systemChance.fraction() * 2 ** 52)
}

// ---- sending ----

/** No call takes longer, whatever the core says. */
const LIMIT_MS = 10_000
/**
 * Lines are locked in one order, which leaves few deadlocks: with a user who locks our rows by hand, and among
 * processes where a server also locks the gaps between rows, for rows that are made and removed, or for plain
 * statements under REPEATABLE READ. The call that the server chooses to fail has done nothing, and is sent again.
 */
const ATTEMPTS = 3

export type MysqlProcedure =
  | 'enter'
  | 'renew'
  | 'leave'
  | 'evict'
  | 'inspect'
  | 'list'
  | 'tidy'
  | 'due_lines'
  | 'take'
  | 'hold'
  | 'wake_engines'
  | 'get'
  | 'put'
  | 'facts'
  | 'records'
  | 'forget'

/** What the core has called, for messages of errors, where that is not the name of the procedure. */
const CALLS: Readonly<Record<Exclude<MysqlProcedure, EngineCall>, EngineCall>> = {
  tidy: 'leave',
  due_lines: 'leave',
  wake_engines: 'subscribe',
  facts: 'put',
  records: 'list',
  forget: 'put',
}

export interface MysqlCallOptions {
  readonly signal?: AbortSignal | undefined
  readonly limitMs?: number
}

/**
 * How a procedure or a statement of ours is sent: within a deadline. Where the procedures or tables are not there, they
 * are made first. The database is not asked whether they are there: nearly always they are, and the question would cost
 * a round trip.
 */
export class MysqlCaller {
  readonly #wire: MysqlWire
  readonly #limits: CallLimits
  readonly #names: MysqlNames
  readonly #crowded: () => void
  /** Statements under the names of our tables: those with a limit for the wait for rows, and those without. */
  readonly #brief = new Map<string, string>()
  readonly #patient = new Map<string, string>()
  #making: Promise<void> | undefined

  /** `crowded` is called when the server has no connection to spare for a call. */
  constructor(wire: MysqlWire, clock: Clock, names: MysqlNames, crowded: () => void) {
    this.#wire = wire
    this.#limits = new CallLimits(clock)
    this.#names = names
    this.#crowded = crowded
  }

  /** The result sets of a procedure; its arguments are SQL. Rejects with an `EngineError`. */
  async call(
    procedure: MysqlProcedure,
    args: readonly string[],
    options?: MysqlCallOptions,
  ): Promise<readonly ResultRows[]> {
    return await this.#ask(calledFor(CALLS, procedure), `CALL \`holdfast_${procedure}\`(${args.join(', ')})`, options)
  }

  /** The result sets of a statement. Rejects with an `EngineError`. */
  async #ask(
    verb: EngineCall,
    statement: string,
    { signal, limitMs = LIMIT_MS }: MysqlCallOptions = {},
  ): Promise<readonly ResultRows[]> {
    const sql = this.#named(statement)
    return await this.#timely(verb, (deadline) => this.#wire.ask(sql, deadline), limitMs, signal)
  }

  /**
   * What became of a statement, which is made anew for each attempt. `briefly`: it does not wait long for a row that
   * another transaction has locked for good. Rejects with an `EngineError`.
   */
  async change(
    verb: EngineCall,
    make: () => MysqlStatement,
    briefly: boolean,
    { signal, limitMs = LIMIT_MS }: MysqlCallOptions = {},
  ): Promise<StatementResult> {
    const statement = (): MysqlStatement => {
      const { sql, values } = make()
      return { sql: values.length === 0 ? this.#named(limited(sql, briefly)) : this.#namedOnce(sql, briefly), values }
    }
    return await this.#timely(verb, (deadline) => this.#wire.change(statement(), deadline), limitMs, signal)
  }

  /**
   * Make what is missing, for `verb`: once for all calls that find something missing at the same time. Rejects with an
   * `EngineError`.
   */
  async make(verb: EngineCall): Promise<void> {
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined
    })
    // Whatever becomes of the tables, the call itself has not been made.
    await failingAs(asEngineError, verb, this.#making, { outcome: 'not-applied' })
  }

  #named(sql: string): string {
    return renamed(sql, this.#names)
  }

  /** For the few statements that are the same each time. */
  #namedOnce(sql: string, briefly: boolean): string {
    const prepared = briefly ? this.#brief : this.#patient
    const before = prepared.get(sql)
    if (before !== undefined) return before
    const named = this.#named(limited(sql, briefly))
    prepared.set(sql, named)
    return named
  }

  async #timely<Value>(
    verb: EngineCall,
    send: (deadline: CallDeadline) => Promise<Value>,
    limitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Value> {
    const deadline = this.#limits.deadline(limitMs, signal)
    try {
      return await this.#again(verb, send, deadline)
    } catch (error) {
      if (isCrowded(error)) this.#crowded()
      throw asEngineError(verb, error)
    } finally {
      deadline.end()
    }
  }

  async #again<Value>(
    verb: EngineCall,
    send: (deadline: CallDeadline) => Promise<Value>,
    deadline: CallDeadline,
  ): Promise<Value> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await send(deadline)
      } catch (error) {
        if (attempt === ATTEMPTS || deadline.over) throw error
        if (isMissing(error)) await this.make(verb)
        else if (!isDeadlock(error)) throw error
      }
    }
  }

  async #make(): Promise<void> {
    const deadline = this.#limits.deadline(LIMIT_MS)
    try {
      await this.#wire.run((ask) => firstUse(this.#names, ask), deadline)
    } catch (error) {
      if (isCrowded(error)) this.#crowded()
      throw error
    } finally {
      deadline.end()
    }
  }
}

/** For MariaDB: MySQL has no such limit for one statement, and then our own deadline has to do. */
function limited(sql: string, briefly: boolean): string {
  return briefly ? `SET STATEMENT innodb_lock_wait_timeout = 1 FOR ${sql}` : sql
}
