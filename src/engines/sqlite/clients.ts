/**
 * The engine objects that use the file, as rows in it: this one, and what becomes of the others.
 *
 * A client is written down when it first enters a line. Its row says in which process it lives, so that a process that waits behind it can see that it is dead.
 */
import { isDead, type ProcessName } from './process.ts'
import type { ClientRow, Statements } from './statements.ts'

/** A process that was alive this recently is not looked at again. */
const ALIVE_FOR_MS = 100

/** Nobody can judge a client of another container. Its row goes when nothing of it has been in a line for this long. */
const FORGET_AFTER_MS = 24 * 3_600_000

export class Clients {
  /** Our number in the file; undefined until our first enter is committed. */
  own: number | undefined
  readonly #name: ProcessName
  readonly #groups: number[] = []
  readonly #aliveAt = new Map<number, number>()

  constructor(name: ProcessName) {
    this.#name = name
  }

  /** Write ourselves down. The caller sets `own` once it is committed. */
  register(sql: Statements, now: number): number {
    const { realm, pid, born } = this.#name
    const [row] = sql.addClient.all(realm, pid, born, JSON.stringify(this.#groups), now)
    return (row as { client: number }).client
  }

  /** From now on, this process group has to be dead as well before we count as dead. */
  addGroup(group: number): void {
    if (!this.#groups.includes(group)) this.#groups.push(group)
  }

  writeGroups(sql: Statements, client: number): void {
    sql.setGroups.run(JSON.stringify(this.#groups), client)
  }

  /**
   * Whether that client is surely dead. Act on it only inside a transaction that has read it: what a living client writes down about
   * itself may change in between, what a dead one wrote may not.
   */
  isDead(client: number, sql: Statements, now: number): boolean {
    if (client === this.own) return false
    const aliveAt = this.#aliveAt.get(client)
    if (aliveAt !== undefined && now - aliveAt < ALIVE_FOR_MS) return false
    const [row] = sql.client.all(client)
    if (row !== undefined && isDeadRow(row)) {
      this.#aliveAt.delete(client)
      return true
    }
    if (this.#aliveAt.size > 1000) this.#aliveAt.clear()
    this.#aliveAt.set(client, now)
    return false
  }

  /** Whether the row of a client that nobody can judge may go. */
  isForgotten(row: ClientRow, sql: Statements, now: number): boolean {
    return (
      row.client !== this.own && now - row.since > FORGET_AFTER_MS && sql.isInLine.all(row.client).length === 0 && !isOurs(row, this.#name)
    )
  }
}

function isDeadRow(row: ClientRow): boolean {
  return isDead(row, JSON.parse(row.groups) as number[])
}

function isOurs(row: ClientRow, name: ProcessName): boolean {
  return row.realm !== null && row.realm === name.realm
}
