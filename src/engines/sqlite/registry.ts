/**
 * The engine objects that use the file, as rows in it: this one, and what becomes of the others. The file calls an
 * engine object a client, and its number is our `engineId`.
 *
 * An engine is written down when it first enters a line. Its row says in which process it lives, so that a process that
 * waits behind it can see that it is dead.
 */
import { isDead, type ProcessName } from './process.ts'
import type { ClientRow, SqliteStatements } from './sql/statements.ts'

/** What was looked at this recently is not looked at again: a process, and the holders of a line. */
const FRESH_MS = 100
/** How much of that is remembered. */
const MOST_REMEMBERED = 1000

/**
 * The death of an engine in another container cannot be judged from here. Its row goes when no entry of it has been in
 * a line for this long.
 */
const FORGET_AFTER_MS = 24 * 3_600_000

export class EngineRegistry {
  /** Our number in the file; undefined until our first enter is committed. */
  engineId: number | undefined
  readonly #process: ProcessName
  readonly #groups: number[] = []
  readonly #aliveAt = new Map<number, number>()
  readonly #checkedAt = new Map<string, number>()

  constructor(process: ProcessName) {
    this.#process = process
  }

  /** Write ourselves down. The caller sets `engineId` once it is committed. */
  register(sql: SqliteStatements, now: number): number {
    const { realm, pid, born } = this.#process
    const [row] = sql.addClient.all(realm, pid, born, JSON.stringify(this.#groups), now)
    return (row as { client: number }).client
  }

  /** From now on, this process group has to be dead as well before we count as dead. */
  addGroup(group: number): void {
    if (!this.#groups.includes(group)) this.#groups.push(group)
  }

  writeGroups(sql: SqliteStatements, engineId: number): void {
    sql.setGroups.run(JSON.stringify(this.#groups), engineId)
  }

  /**
   * Whether that engine is surely dead. Act on it only inside a transaction that has read it: what a living engine
   * writes down about itself may change in between, what a dead one wrote may not.
   */
  isDead(engineId: number, sql: SqliteStatements, now: number): boolean {
    if (engineId === this.engineId) return false
    const aliveAt = this.#aliveAt.get(engineId)
    if (aliveAt !== undefined && now - aliveAt < FRESH_MS) return false
    const [row] = sql.client.all(engineId)
    if (row !== undefined && isDeadRow(row)) {
      this.#aliveAt.delete(engineId)
      return true
    }
    remember(this.#aliveAt, engineId, now)
    return false
  }

  /**
   * Whether to ask for the holders of this line, to see if they are dead. In a line of many readers, asking walks them
   * all.
   */
  mayCheckHolders(key: string, now: number): boolean {
    const checkedAt = this.#checkedAt.get(key)
    if (checkedAt !== undefined && now - checkedAt < FRESH_MS) return false
    remember(this.#checkedAt, key, now)
    return true
  }

  /** Whether the row of an engine whose death cannot be judged from here may go. */
  isForgotten(row: ClientRow, sql: SqliteStatements, now: number): boolean {
    return (
      row.client !== this.engineId &&
      now - row.since > FORGET_AFTER_MS &&
      sql.isInLine.all(row.client).length === 0 &&
      !isInRealm(row, this.#process)
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

function isInRealm(row: ClientRow, { realm }: ProcessName): boolean {
  return row.realm !== null && row.realm === realm
}
