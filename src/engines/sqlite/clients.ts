/**
 * The engine objects that use the file, as rows in it: this one, and what becomes of the others.
 *
 * A client is written down when it first enters a line. Its row says in which process it lives, so that a process that
 * waits behind it can see that it is dead.
 */
import { isDead, type ProcessName } from './process.ts'
import type { ClientRow, Statements } from './statements.ts'

/** What was looked at this recently is not looked at again: a process, and the holders of a line. */
const FRESH_MS = 100
/** How much of that is remembered. */
const MOST_REMEMBERED = 1000

/** Nobody can judge a client of another container. Its row goes when nothing of it has been in a line for this long. */
const FORGET_AFTER_MS = 24 * 3_600_000

export class Clients {
  /** Our number in the file; undefined until our first enter is committed. */
  own: number | undefined
  readonly #name: ProcessName
  readonly #groups: number[] = []
  readonly #aliveAt = new Map<number, number>()
  readonly #lookedAt = new Map<string, number>()

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
   * Whether that client is surely dead. Act on it only inside a transaction that has read it: what a living client
   * writes down about itself may change in between, what a dead one wrote may not.
   */
  isDead(client: number, sql: Statements, now: number): boolean {
    if (client === this.own) return false
    const aliveAt = this.#aliveAt.get(client)
    if (aliveAt !== undefined && now - aliveAt < FRESH_MS) return false
    const [row] = sql.client.all(client)
    if (row !== undefined && isDeadRow(row)) {
      this.#aliveAt.delete(client)
      return true
    }
    remember(this.#aliveAt, client, now)
    return false
  }

  /**
   * Whether to ask for the holders of this line, to see if they are dead. In a line of many readers, asking walks them
   * all.
   */
  mayLookAt(key: string, now: number): boolean {
    const lookedAt = this.#lookedAt.get(key)
    if (lookedAt !== undefined && now - lookedAt < FRESH_MS) return false
    remember(this.#lookedAt, key, now)
    return true
  }

  /** Whether the row of a client that nobody can judge may go. */
  isForgotten(row: ClientRow, sql: Statements, now: number): boolean {
    return (
      row.client !== this.own &&
      now - row.since > FORGET_AFTER_MS &&
      sql.isInLine.all(row.client).length === 0 &&
      !isOurs(row, this.#name)
    )
  }
}

function remember<Name>(times: Map<Name, number>, name: Name, now: number): void {
  if (times.size >= MOST_REMEMBERED) times.clear()
  times.set(name, now)
}

function isDeadRow(row: ClientRow): boolean {
  return isDead(row, JSON.parse(row.groups) as number[])
}

function isOurs(row: ClientRow, name: ProcessName): boolean {
  return row.realm !== null && row.realm === name.realm
}
