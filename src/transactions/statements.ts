/**
 * Statements made of the caller's names and values. Names are quoted, values are parameters, and what could mean
 * something else than it says is refused before anything is sent: an empty condition (every row), an undefined value (a
 * forgotten one), a name that the server would cut short.
 */

/**
 * `'tickets'`, `'shop.tickets'`, or `['shop', 'odd.name']` where a name has a dot in it. Taken literally: on PostgreSQL
 * `Tickets` is not `tickets`.
 */
export type Table = string | readonly [schema: string, table: string]

/** Columns and what they equal, all of them. `null` means `IS NULL`. */
export type Where = Readonly<Record<string, unknown>>

/** What differs between the servers. */
export interface Dialect {
  quote(name: string): string
  /** The placeholder of the value at this position, counted from 1. */
  parameter(position: number): string
  /**
   * The very same value, or both null: `column` was read as `value`. Texts that a collation takes for equal are not
   * the same. `parameter` is called for each placeholder of that value.
   */
  same(column: string, value: unknown, parameter: () => string): string
  /** Whether the client sends such a value as one value. */
  takes(value: unknown): boolean
}

export interface Statement {
  readonly text: string
  readonly values: readonly unknown[]
}

export interface Selection {
  readonly table: Table
  readonly where: Where
  readonly columns?: readonly string[] | undefined
  readonly order?: readonly string[] | undefined
  readonly limit?: number | undefined
}

/** `suffix` is what follows: how to lock. */
export function select(dialect: Dialect, { table, where, columns, order, limit }: Selection, suffix = ''): Statement {
  const values = new Values(dialect)
  const parts = [
    `SELECT ${columns === undefined ? '*' : list(dialect, columns, 'columns')} FROM ${tableName(dialect, table)}`,
    `WHERE ${condition(values, where)}`,
    ...(order === undefined ? [] : [`ORDER BY ${list(dialect, order, 'order')}`]),
    ...(limit === undefined ? [] : [`LIMIT ${wholeLimit(limit)}`]),
    ...(suffix === '' ? [] : [suffix]),
  ]
  return { text: parts.join(' '), values: values.given }
}

/** Set columns of the row that `where` names, if it still has `expected`. */
export function update(dialect: Dialect, table: Table, changes: Where, where: Where, expected: Where): Statement {
  const values = new Values(dialect)
  const set = Object.entries(changes).map(
    ([column, value]) => `${dialect.quote(column)} = ${values.add(column, value)}`,
  )
  const key = condition(values, where)
  const still = Object.entries(expected).map(([column, value]) =>
    dialect.same(dialect.quote(column), value, () => values.add(column, value)),
  )
  const text = `UPDATE ${tableName(dialect, table)} SET ${set.join(', ')} WHERE ${[key, ...still].join(' AND ')}`
  return { text, values: values.given }
}

/** For messages: `tickets (id = 7)`. */
export function describeRow(table: Table, where: Where): string {
  const shown = Object.entries(where).map(
    ([column, value]) => `${column} = ${typeof value === 'string' ? `'${value}'` : String(value)}`,
  )
  return `${partsOf(table).join('.')} (${shown.join(', ')})`
}

class Values {
  readonly given: unknown[] = []
  readonly dialect: Dialect

  constructor(dialect: Dialect) {
    this.dialect = dialect
  }

  add(column: string, value: unknown): string {
    if (value === undefined) throw new TypeError(`'${column}' is undefined; use null for NULL`)
    if (!this.dialect.takes(value)) {
      throw new TypeError(
        `'${column}' must be a string, number, bigint, boolean, Date, Buffer or null; got ${typeof value}`,
      )
    }
    this.given.push(value)
    return this.dialect.parameter(this.given.length)
  }
}

function condition(values: Values, where: Where): string {
  const columns = Object.entries(where)
  if (columns.length === 0) throw new TypeError('where names no column: it would mean every row of the table')
  const { dialect } = values
  return columns
    .map(([column, value]) =>
      value === null ? `${dialect.quote(column)} IS NULL` : `${dialect.quote(column)} = ${values.add(column, value)}`,
    )
    .join(' AND ')
}

function list(dialect: Dialect, columns: readonly string[], what: string): string {
  if (columns.length === 0) throw new TypeError(`${what} must name a column, or be left out`)
  return columns.map((column) => dialect.quote(column)).join(', ')
}

export function tableName(dialect: Pick<Dialect, 'quote'>, table: Table): string {
  return partsOf(table)
    .map((part) => dialect.quote(part))
    .join('.')
}

/**
 * A table that is the same one on every connection. A name alone would be looked for wherever that connection looks
 * first, which differs between users and can be changed. `schema` is where such a table is; undefined if there is no
 * place that all connections know.
 */
export function fixedTable(dialect: Pick<Dialect, 'quote'>, table: Table, schema: string | undefined): string {
  const parts = partsOf(table)
  if (parts.length === 2) return tableName(dialect, table)
  if (schema !== undefined) return tableName(dialect, [schema, ...parts] as [string, string])
  throw new TypeError(
    `table must name its database, too: 'database.${parts.join('.')}'. ` +
      'Connections in different databases would each have a table of their own',
  )
}

function partsOf(table: Table): readonly string[] {
  const parts = typeof table === 'string' ? table.split('.') : table
  if (Array.isArray(parts) && parts.length <= 2 && parts.every((part) => typeof part === 'string')) return parts
  throw new TypeError(`table must be 'name', 'schema.name' or ['schema', 'name']; got ${JSON.stringify(table)}`)
}

function wholeLimit(limit: number): number {
  if (Number.isSafeInteger(limit) && limit >= 1) return limit
  throw new RangeError(`limit must be a whole number, 1 or more; got ${limit}`)
}

/** Quote a name the way servers do: the quote doubled inside. */
export function quoted(name: string, quote: string, longest: number): string {
  if (typeof name !== 'string' || name === '' || name.includes('\0')) {
    throw new TypeError(
      `a name of a table or column must be a string of at least one character, without NUL; got ${JSON.stringify(name)}`,
    )
  }
  if (longest < Buffer.byteLength(name))
    throw new RangeError(`the name '${name}' is longer than the ${longest} bytes the server keeps of it`)
  return `${quote}${name.replaceAll(quote, quote + quote)}${quote}`
}
