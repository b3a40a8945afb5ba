/**
 * How a procedure or a statement of ours is sent: within a deadline. Where the procedures or tables are not there, they
 * are made first. The database is not asked whether they are there: nearly always they are, and the question would cost
 * a round trip.
 */

import { isMissing } from '../../clients/mysql/errors.ts'
import type { MysqlStatement, MysqlWire, ResultRows, StatementResult } from '../../clients/mysql/wire.ts'
import { type CallDeadline, CallLimits } from '../../clients/shared/call-limits.ts'
import type { Clock } from '../../core/clock.ts'
import { asEngineError, isCrowded, isDeadlock } from './errors.ts'
import { firstUse } from './migration.ts'
import { type MysqlNames, renamed } from './names.ts'

/** No call takes longer, whatever the core says. */
const LIMIT_MS = 10_000
/**
 * Lines are locked in one order, which leaves few deadlocks: with a user who locks our rows by hand, and among
 * processes where a server also locks the gaps between rows, for rows that are made and removed, or for plain
 * statements under REPEATABLE READ. The call that the server chooses to fail has done nothing, and is sent again.
 */
const ATTEMPTS = 3

export type MysqlProcedure = 'enter' | 'renew' | 'leave' | 'evict' | 'inspect' | 'list' | 'tidy' | 'due' | 'wake'

export interface MysqlCallOptions {
  readonly signal?: AbortSignal | undefined
  readonly limitMs?: number
}

export class MysqlCaller {
  readonly #wire: MysqlWire
  readonly #limits: CallLimits
  readonly #names: MysqlNames
  readonly #crowded: () => void
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
    return await this.#ask(`CALL \`holdfast_${procedure}\`(${args.join(', ')})`, options)
  }

  /** The result sets of a statement. Rejects with an `EngineError`. */
  async #ask(statement: string, { signal, limitMs = LIMIT_MS }: MysqlCallOptions = {}): Promise<readonly ResultRows[]> {
    const sql = this.#named(statement)
    return await this.#timely((deadline) => this.#wire.ask(sql, deadline), limitMs, signal)
  }

  /**
   * What became of a statement, which is made anew for each attempt. `briefly`: it does not wait long for a row that
   * another transaction has locked for good. Rejects with an `EngineError`.
   */
  async change(
    make: () => MysqlStatement,
    briefly: boolean,
    { signal, limitMs = LIMIT_MS }: MysqlCallOptions = {},
  ): Promise<StatementResult> {
    const statement = (): MysqlStatement => {
      const { sql, values } = make()
      return { sql: values.length === 0 ? this.#named(limited(sql, briefly)) : this.#namedOnce(sql, briefly), values }
    }
    return await this.#timely((deadline) => this.#wire.change(statement(), deadline), limitMs, signal)
  }

  /** Make what is missing: once for all calls that find something missing at the same time. */
  make(): Promise<void> {
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined
    })
    return this.#making
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
    send: (deadline: CallDeadline) => Promise<Value>,
    limitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Value> {
    const deadline = this.#limits.deadline(limitMs, signal)
    try {
      return await this.#again(send, deadline)
    } catch (error) {
      if (isCrowded(error)) this.#crowded()
      throw asEngineError(error)
    } finally {
      deadline.end()
    }
  }

  async #again<Value>(send: (deadline: CallDeadline) => Promise<Value>, deadline: CallDeadline): Promise<Value> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await send(deadline)
      } catch (error) {
        if (attempt === ATTEMPTS || deadline.over) throw error
        if (isMissing(error)) await this.make()
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
      // Whatever became of the tables, the call itself has not been made.
      throw asEngineError(error, 'not-applied')
    } finally {
      deadline.end()
    }
  }
}

/** For MariaDB: MySQL has no such limit for one statement, and then our own deadline has to do. */
function limited(sql: string, briefly: boolean): string {
  return briefly ? `SET STATEMENT innodb_lock_wait_timeout = 1 FOR ${sql}` : sql
}
