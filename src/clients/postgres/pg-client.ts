/** What we use of a client of pg, how statements are spelt for it, and how we end one that does not answer. */
import { createHash } from 'node:crypto'

/** Answers as the server writes them, whatever a user has told pg to make of them. */
interface RawTypes {
  getTypeParser(): (value: string) => string
}

const RAW: RawTypes = { getTypeParser: () => (value) => value }

export interface Query {
  /** Under a name, a statement is prepared once for each connection. */
  readonly name?: string
  readonly text: string
  readonly values: string[]
  readonly rowMode: 'array'
  readonly types: RawTypes
}

export type Answered = (error: Error | null, result: { rows: unknown[][] }) => void

/** What we use of a `Client` of pg. */
export interface PgClient {
  query(query: Query, answered: Answered): void
  query(text: string): Promise<unknown>
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'notification', listener: (message: { channel: string; payload?: string | undefined }) => void): unknown
  on(event: 'end', listener: () => void): unknown
  removeListener(
    event: 'notification',
    listener: (message: { channel: string; payload?: string | undefined }) => void,
  ): unknown
}

/** A client of ours, which we also connect and end. */
export interface OwnPgClient extends PgClient {
  connect(): Promise<unknown>
  end(): Promise<void>
}

/**
 * Statements under names, as long as that works.
 *
 * A pooler that gives a connection for one transaction only gives another one for the next: there a name is unknown, or
 * taken by somebody else. The server says so before it does anything, and from then on we do without. (The name is made
 * of the text, so whatever has our name is our statement.)
 */
export class Statements {
  readonly #names = new Map<string, string>()
  #named = true

  query(text: string, values: readonly string[]): Query {
    const query = { text, values: values as string[], rowMode: 'array', types: RAW } as const
    return this.#named ? { name: this.#nameOf(text), ...query } : query
  }

  /** Whether the same should be tried again, without a name. */
  refused(error: Error, query: Query): boolean {
    const { code } = error as { code?: string }
    if (query.name === undefined || (code !== UNKNOWN_NAME && code !== TAKEN_NAME)) return false
    this.#named = false
    return true
  }

  #nameOf(text: string): string {
    const known = this.#names.get(text)
    if (known !== undefined) return known
    const name = `holdfast_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
    this.#names.set(text, name)
    return name
  }
}

const UNKNOWN_NAME = '26000'
const TAKEN_NAME = '42P05'

/** An error that the server answered with, and after which it goes on listening. */
export function isFromServer(error: Error): boolean {
  const { code, severity } = error as { code?: unknown; severity?: unknown }
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && severity !== undefined && !/^57P|^08/.test(code)
}

/**
 * Without goodbye: a server that does not answer would not hear it either, and the socket would stay open until it
 * does.
 */
export function cut(client: object): void {
  const { connection } = client as { connection?: { stream?: { destroy?(): void } } }
  connection?.stream?.destroy?.()
}
