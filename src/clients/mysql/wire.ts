/**
 * What the engine asks of a client, whichever it is: see mysql2.ts.
 *
 * A wire sends a statement once, on whichever connection is free, and gives the connection back. It never sends late:
 * what still waits for a connection when the deadline comes is dropped.
 */
import type { CallDeadline } from '../shared/call-limits.ts'

/** Rows, each an array of values. */
export type ResultRows = readonly (readonly unknown[])[]

/** A statement that changes something. */
export interface MysqlStatement {
  readonly sql: string
  /** What its placeholders stand for: digits, decimal or hexadecimal. */
  readonly values: string[]
}

/** What became of a statement. */
export interface StatementResult {
  /** Its LAST_INSERT_ID; 0 if it did not set it. */
  readonly lastInsertId: bigint
  /** How many rows it changed. */
  readonly changed: number
}

export interface MysqlWire {
  /** The result sets of one statement. Rejects with the client's own error; with `NotSent` if nothing was sent. */
  ask(sql: string, deadline: CallDeadline): Promise<readonly ResultRows[]>
  /** One statement that changes something, by itself. */
  change(statement: MysqlStatement, deadline: CallDeadline): Promise<StatementResult>
  /** Several statements, one after the other, on one connection. */
  run(work: (ask: (sql: string) => Promise<ResultRows>) => Promise<void>, deadline: CallDeadline): Promise<void>
  /** One more connection, outside of any pool, to listen on. Undefined: this client does not tell how. */
  readonly connect: (() => Promise<OwnMysqlConnection>) | undefined
  /** Let go of the client: close it if it is ours. */
  close(): Promise<void>
}

/** A connection of our own. */
export interface OwnMysqlConnection {
  ask(sql: string): Promise<ResultRows>
  /** Called once, when it has come to its end, however that was. */
  onEnd(ended: () => void): void
  /** End it, without waiting for anything. */
  cut(): void
}
