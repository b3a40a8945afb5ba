/**
 * `holdfast/guards/postgres`: marks in a table beside what is protected, raised and compared inside of the caller's own
 * transaction, with pg or postgres.js.
 *
 *     const guarded = guard()
 *     await guarded.setup(pool)                                      once; or put `guarded.schema` into a migration
 *
 *     await client.query('BEGIN')
 *     await guarded.read(client, lease)                              before reading what will be written back
 *     await guarded.write(client, lease)                             before writing
 *     await client.query('COMMIT')
 *
 *     await guarded.writeStatement(pool, lease, { text, values })    check and write as one: no round trip more
 *
 * The server itself refuses: a stale token makes the statement fail, and a failed statement aborts the transaction.
 * Even a caller who forgets to await the guard cannot commit. How a plain statement fails on purpose, with a number in
 * its message: by casting a text to a number that is none.
 */

import { advisoryKey } from '../clients/postgres/advisory-key.ts'
import { SQLSTATE, sqlStateOf } from '../clients/postgres/errors.ts'
import { ConflictError, StaleTokenError } from '../core/errors.ts'
import { checkOptions, type OptionNames } from '../core/options.ts'
import {
  askerOf,
  dialect,
  insideTransaction,
  type PostgresAnswer,
  type PostgresTransactionClient,
  refuseOutsideTransaction,
} from '../transactions/postgres/client.ts'
import { notInTransaction } from '../transactions/row-lock.ts'
import { fixedTable, type Table } from '../transactions/statements.ts'
import { type LeaseLike, newerFormat, type ResourceToken, resourceToken } from './lease-like.ts'
import { type Access, FOR_EVER, FORMAT, type ForgetAfter, MARKS_TABLE, type Mark, parseForget } from './marks.ts'

export type { PgTransactionClient, PostgresJsSql, PostgresTransactionClient } from '../transactions/postgres/client.ts'
export type { LeaseLike } from './lease-like.ts'
export type { ForgetAfter, Mark, Marks } from './marks.ts'

/** Options of a guard on PostgreSQL. */
export interface PostgresGuardOptions {
  /**
   * Where the marks are: `public.holdfast_marks` unless given. Without a schema it is in `public`, whatever search_path
   * a connection has: all who write one resource have to find the same marks.
   */
  readonly table?: Table
  /**
   * How long to keep the mark of a resource that no token uses, by the clock of the server: for ever unless given. An
   * older holder is let in again after that. `forget()` removes the marks whose time is over.
   */
  readonly forget?: ForgetAfter
}

const OPTIONS: OptionNames<PostgresGuardOptions> = { table: true, forget: true }

/** A statement that is checked and executed as one. */
export interface GuardedStatement {
  /** One `INSERT`, `UPDATE`, `DELETE` or `MERGE`, also with a `WITH` of its own. */
  readonly text: string
  readonly values?: readonly unknown[]
}

/**
 * `client` is yours: a Client or PoolClient of pg, or the `sql` of postgres.js. `resource` is the key of the lease
 * unless given.
 */
export interface PostgresGuard {
  /** What `setup` makes, for a migration. */
  readonly schema: string
  /** Make the table, if it is not there. */
  setup(client: PostgresTransactionClient): Promise<void>
  /**
   * Before reading, inside of your transaction. Rejects with `StaleTokenError` if a higher token has written; roll back
   * then.
   */
  read(client: PostgresTransactionClient, lease: LeaseLike, resource?: string): Promise<void>
  /**
   * Before writing, inside of your transaction. Rejects with `StaleTokenError` if a higher token has read or written;
   * roll back then.
   */
  write(client: PostgresTransactionClient, lease: LeaseLike, resource?: string): Promise<void>
  /**
   * Write and check as one statement, inside of a transaction or without one. Rejects with `StaleTokenError`, and then
   * nothing is written. A statement that another transaction's commit has overtaken may have read old data: it is
   * undone and sent again. Inside of a transaction that cannot be, and it rejects with `ConflictError`: roll back and
   * begin again.
   */
  writeStatement(
    client: PostgresTransactionClient,
    lease: LeaseLike,
    statement: GuardedStatement,
    resource?: string,
  ): Promise<PostgresAnswer>
  /** The marks of all resources whose name begins so, by name. */
  list(client: PostgresTransactionClient, prefix?: string): Promise<readonly Mark[]>
  /**
   * Forget a resource, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then.
   */
  reset(client: PostgresTransactionClient, resource: string, seen: bigint): Promise<boolean>
  /**
   * Remove the marks whose time is over, now and then, outside of a transaction: see the option `forget`. Answers how
   * many. Marks that a transaction uses at the moment are passed over.
   */
  forget(client: PostgresTransactionClient): Promise<number>
}

/** What a failed cast says, with what we have put there. */
const REFUSAL = /holdfast (stale|newer|overtaken) (\d+)/
const MOST_TRIES = 10
/** Milliseconds since 1970 when it is asked: a transaction may have begun long ago. */
const NOW_MS = '(extract(epoch from clock_timestamp()) * 1000)::bigint'
/** How many rows one statement removes, so that none takes long. */
const MOST_AT_ONCE = 1000

/** A guard on PostgreSQL: the server refuses stale tokens inside of your transaction. */
export function guard(options: PostgresGuardOptions = {}): PostgresGuard {
  checkOptions('guard()', options, OPTIONS)
  const table = fixedTable(dialect, options.table ?? MARKS_TABLE, 'public')
  const schema = `CREATE TABLE IF NOT EXISTS ${table} (
    resource text COLLATE "C" PRIMARY KEY, format int NOT NULL, seen bigint NOT NULL, written bigint NOT NULL,
    kept_until bigint NOT NULL DEFAULT ${FOR_EVER}
  )`
  const forgetMs = parseForget(options.forget)
  const keptUntil = forgetMs === undefined ? `${FOR_EVER}` : `${NOW_MS} + ${forgetMs}`
  // Of several who make a table at once, all but one can fail, in spite of IF NOT EXISTS.
  const settingUp = `DO $holdfast$ BEGIN
    PERFORM pg_advisory_xact_lock(${advisoryKey(`the guard of ${table}`)});
    ${schema};
  END $holdfast$`

  /**
   * One statement: a row that is locked until the transaction ends, marks that only rise, or a failure. Parameters
   * begin after `given`; `overtaken` is a further case of failure.
   */
  const raise = (access: Access, given: number, overtaken = ''): string => {
    const [resource, token] = [`$${given + 1}::text`, `$${given + 2}::bigint`]
    const lowest = access === 'write' ? 'marks.seen' : 'marks.written'
    return `INSERT INTO ${table} AS marks (resource, format, seen, written, kept_until)
      VALUES (${resource}, ${FORMAT}, ${token}, ${access === 'write' ? token : '0'}, ${keptUntil})
      ON CONFLICT (resource) DO UPDATE SET
        seen = CASE
          WHEN marks.format > ${FORMAT} THEN ('holdfast newer ' || marks.format)::bigint
          WHEN excluded.seen < ${lowest} THEN ('holdfast stale ' || ${lowest})::bigint${overtaken}
          ELSE greatest(marks.seen, excluded.seen) END,
        written = greatest(marks.written, excluded.written),
        kept_until = greatest(marks.kept_until, excluded.kept_until)`
  }
  const raising = { read: raise('read', 0), write: raise('write', 0) }
  /**
   * A statement reads as of its begin, but for the rows it changes itself. If it had to wait for the marks, what it has
   * read may be from before the commit it waited for; then the marks that it *sees*, as of its begin, are another
   * version of the row than the one it has locked.
   */
  const raiseWith = (given: number): string =>
    raise(
      'write',
      given,
      `
          WHEN marks.xmin IS DISTINCT FROM (SELECT known.xmin FROM ${table} AS known WHERE known.resource = $${given + 1}::text)
            THEN ('holdfast overtaken ' || marks.seen)::bigint`,
    )

  async function checkMarks(
    client: PostgresTransactionClient,
    access: Access,
    lease: LeaseLike,
    name?: string,
  ): Promise<void> {
    const asked = resourceToken(lease, access, name)
    // Sent before this function first waits, so that nothing that the caller sends next can overtake it.
    const isInside = insideTransaction(client)
    if (isInside === undefined) await refuseOutsideTransaction(client, table, 'a guard', OPEN_ONE)
    await answered(asked, askerOf(client)(raising[access], [asked.resource, String(asked.token)], 'fixed'))
    // After the answer: only now the client knows of a BEGIN that was sent right before.
    if (isInside?.() === false) throw notInTransaction('a guard', OPEN_ONE)
  }

  return {
    schema,
    setup: async (client) => void (await askerOf(client)(settingUp)),
    read: (client, lease, resource) => checkMarks(client, 'read', lease, resource),
    write: (client, lease, resource) => checkMarks(client, 'write', lease, resource),
    writeStatement: async (client, lease, { text, values = [] }, resource) => {
      const asked = resourceToken(lease, 'write', resource)
      const { recursive, others } = leadingWith(text)
      const whole = `WITH ${recursive}holdfast_guard AS (${raiseWith(values.length)})${others === undefined ? ` ${text}` : `, ${others}`}`
      return await repeated(asked, () => askerOf(client)(whole, [...values, asked.resource, String(asked.token)]))
    },
    list: async (client, prefix = '') => {
      const listing = `SELECT resource, seen::text, written::text FROM ${table} WHERE starts_with(resource, $1) ORDER BY resource`
      const { rows } = await askerOf(client)(listing, [prefix])
      return (rows as unknown as readonly Record<'resource' | 'seen' | 'written', string>[]).map(
        ({ resource, seen, written }) => ({
          resource,
          seen: BigInt(seen),
          written: BigInt(written),
        }),
      )
    },
    reset: async (client, resource, seen) => {
      const { count } = await askerOf(client)(`DELETE FROM ${table} WHERE resource = $1 AND seen = $2::bigint`, [
        resource,
        String(seen),
      ])
      return count > 0
    },
    forget: async (client) => {
      // Without an index: that would make every use of a mark dearer, for the sake of what is done once a day.
      const removing = `DELETE FROM ${table} WHERE resource IN (
        SELECT resource FROM ${table} WHERE format = ${FORMAT} AND kept_until < ${NOW_MS}
        LIMIT ${MOST_AT_ONCE} FOR UPDATE SKIP LOCKED)`
      for (let forgotten = 0; ; ) {
        const { count } = await askerOf(client)(removing)
        forgotten += count
        if (count < MOST_AT_ONCE) return forgotten
      }
    },
  }
}

/** What a statement that begins with WITH has behind it: `others`, the caller's own; undefined if it has no WITH. */
function leadingWith(text: string): { readonly recursive: string; readonly others?: string } {
  const others = afterWord(text, 'WITH')
  if (others === undefined) return { recursive: '' }
  const recursive = afterWord(others, 'RECURSIVE')
  return recursive === undefined ? { recursive: '', others } : { recursive: 'RECURSIVE ', others: recursive }
}

/** What follows a word at the beginning of a statement; undefined if it begins with another. */
function afterWord(text: string, word: string): string | undefined {
  const rest = text.slice(blankLength(text))
  const [found] = new RegExp(`^${word}(?![\\w$\\u0080-\\uffff])`, 'i').exec(rest) ?? []
  return found === undefined ? undefined : rest.slice(found.length)
}

/** How much of a statement's beginning is blanks and comments. */
function blankLength(text: string): number {
  const blank = /(?:\s|--[^\r\n]*)*/y
  for (;;) {
    blank.exec(text)
    const at = blank.lastIndex
    if (!text.startsWith('/*', at)) return at
    blank.lastIndex = commentEnd(text, at)
  }
}

/** Where the comment that begins at `from` has ended. Comments in PostgreSQL can be inside of each other. */
function commentEnd(text: string, from: number): number {
  const edge = /\/\*|\*\//g
  edge.lastIndex = from
  for (let depth = 0, found = edge.exec(text); found !== null; found = edge.exec(text)) {
    depth += found[0] === '/*' ? 1 : -1
    if (depth === 0) return edge.lastIndex
  }
  return text.length
}

const OPEN_ONE = "Send 'BEGIN' on this client first, use the sql that sql.begin() gives, or writeStatement()."

/** Until it is not overtaken. Inside of a transaction, the first time has ended that. */
async function repeated(asked: ResourceToken, ask: () => Promise<PostgresAnswer>): Promise<PostgresAnswer> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await answered(asked, ask())
    } catch (error) {
      const ended = tries > 1 && sqlStateOf(error) === SQLSTATE.failedTransaction
      if (!ended && !(error instanceof Overtaken)) throw error
      if (!ended && tries < MOST_TRIES) continue
      const why = 'another transaction committed while the statement was under way'
      throw new ConflictError(
        `'${asked.resource}'`,
        ended ? 1 : tries,
        ended ? `${why}: roll back and begin the transaction again` : why,
      )
    }
  }
}

class Overtaken extends Error {}

/** The server's refusal, in our words. Whatever else it says passes unchanged. */
async function answered({ resource, token }: ResourceToken, reply: Promise<PostgresAnswer>): Promise<PostgresAnswer> {
  try {
    return await reply
  } catch (error) {
    const [, why, number = ''] =
      (sqlStateOf(error) === SQLSTATE.invalidText && REFUSAL.exec((error as Error).message)) || []
    if (why === 'stale') throw new StaleTokenError(resource, token, BigInt(number))
    if (why === 'newer') throw newerFormat('postgres', resource)
    if (why === 'overtaken') throw new Overtaken(resource)
    throw error
  }
}
