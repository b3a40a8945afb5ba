/** What a command is given: its words, who sent it, and the stand-in that answers it. */
import type { Change } from './data.ts'
import { CommandError } from './errors.ts'
import { atOneInstant } from './evaluate.ts'
import type { StandInServer } from './server.ts'
import { Blocked, PlainView, type Session, type Transaction, type View } from './sessions.ts'
import type { Document } from './values.ts'

export type Command = (call: Call) => Document | Promise<Document>

export class Call {
  readonly server: StandInServer
  readonly name: string
  readonly command: Document
  readonly db: string
  readonly connection: number
  readonly session: Session | undefined
  /** Set when the command belongs to a transaction. */
  transaction: Transaction | undefined
  readonly #startedAt = Date.now()

  constructor(server: StandInServer, command: Document, connection: number) {
    this.server = server
    this.command = command
    this.name = Object.keys(command)[0] ?? ''
    this.db = (command.$db as string | undefined) ?? 'admin'
    this.connection = connection
    this.session = command.lsid === undefined ? undefined : server.session(command.lsid as Document)
  }

  /** The collection that the command names. */
  get collection(): string {
    return this.command[this.name] as string
  }

  /** The number of the transaction, or of the retryable write. */
  get number(): bigint | undefined {
    return this.command.txnNumber === undefined ? undefined : BigInt(this.command.txnNumber as bigint)
  }

  get view(): View {
    return this.transaction ?? new PlainView(this.server.data, this.server.transactions)
  }

  /**
   * One statement of a write. A repeated one is answered with its first answer; one that meets a document of an open
   * transaction waits for the end of it. Every `$$NOW` of the command is the instant at which it came.
   */
  async statement<Answer>(index: number, work: (view: View) => Answer): Promise<Answer> {
    const retryable = this.transaction === undefined && this.number !== undefined ? this.session : undefined
    const number = Number((this.command.stmtIds as number[] | undefined)?.[index] ?? this.command.stmtId ?? index)
    const before = retryable?.done<Answer>(number)
    if (before !== undefined) return before
    for (;;) {
      const view = new CountingView(this.view)
      try {
        const answer = atOneInstant(() => work(view), this.#startedAt)
        if (view.writes > 0) retryable?.remember(number, answer)
        return answer
      } catch (error) {
        if (!(error instanceof Blocked)) throw error
        await this.#within(error.by.ended)
      }
    }
  }

  /** The limit that the client has set with maxTimeMS. */
  async #within(event: Promise<void>): Promise<void> {
    const limitMs = this.command.maxTimeMS as number | undefined
    if (limitMs === undefined) return await event
    let timer: NodeJS.Timeout | undefined
    const over = new Promise<void>((_, reject) => {
      timer = setTimeout(
        () => reject(new CommandError(50, 'operation exceeded time limit')),
        Math.max(0, this.#startedAt + limitMs - Date.now()),
      )
    })
    await Promise.race([event, over]).finally(() => clearTimeout(timer))
  }
}

/** A statement that wrote nothing is done anew when it is repeated. */
class CountingView implements View {
  writes = 0
  readonly #view: View

  constructor(view: View) {
    this.#view = view
  }

  records(db: string, collection: string): ReturnType<View['records']> {
    return this.#view.records(db, collection)
  }

  claim(db: string, collection: string, id: unknown): void {
    this.#view.claim(db, collection, id)
  }

  write(change: Change): void {
    this.#view.write(change)
    this.writes += 1
  }
}
