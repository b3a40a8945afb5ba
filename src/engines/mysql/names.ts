/**
 * What our tables and procedures are called, and where they are.
 *
 * Procedures that differ have different names, which end in a hash of their text: processes with older and newer
 * versions of Holdfast work side by side on one database, each with its own, as scripts of Redis do. Those of records,
 * of rate limits and of pools have versions of their own: a change of them does not lock out a user of locks who may
 * not create procedures.
 */
import { createHash } from 'node:crypto'
import { sources } from './sources.ts'

export interface MysqlNames {
  /** The database they are in; undefined: that of the connection. */
  readonly database: string | undefined
  /** What their names begin with. */
  readonly name: string
}

export const DEFAULT_NAME = 'holdfast'

/** Names have 64 characters at most; the longest of our endings has 22. */
const LONGEST = 42
const HASH_DIGITS = 8

export function checkNames({ database, name }: MysqlNames): MysqlNames {
  for (const [option, value] of Object.entries({ database, name })) {
    if (option === 'database' && value === undefined) continue
    if (typeof value === 'string' && /^[A-Za-z_][A-Za-z0-9_]*$/.test(value) && value.length <= LONGEST) continue
    throw new TypeError(
      `${option} must be a name of letters, digits and _, at most ${LONGEST} of them; got ${JSON.stringify(value)}`,
    )
  }
  return { database, name }
}

/** The statements of sql/, each without what is only for people: first the tables, then the procedures. */
const [tables = '', ...procedures] = sources.map(stripped)
const poolProcedures = statementsIn(procedures.pop() ?? '')
const drawProcedures = statementsIn(procedures.pop() ?? '')
const recordProcedures = statementsIn(procedures.pop() ?? '')
const lineProcedures = statementsIn(procedures.join('\n'))
export const TABLES: readonly string[] = statementsIn(tables)
export const PROCEDURES: readonly string[] = [
  ...lineProcedures,
  ...recordProcedures,
  ...drawProcedures,
  ...poolProcedures,
]

const LINE_VERSION = versionOf(lineProcedures)
/** By name, for procedures that are not those of lines. */
const VERSIONS: ReadonlyMap<string, string> = new Map(
  [recordProcedures, drawProcedures, poolProcedures].flatMap((statements) => {
    const version = versionOf(statements)
    return statements.map((sql) => [/`holdfast_(\w+)`/.exec(sql)?.[1] ?? '', version] as const)
  }),
)
export const TABLE_NAMES: readonly string[] = ['meta', 'line', 'entry', 'record', 'pool', 'pool_item', 'pool_hold']

/**
 * Another text has another name. How it is wrapped does not count: users without CREATE ROUTINE would be locked out.
 */
function versionOf(statements: readonly string[]): string {
  const text = statements.join('\n').replaceAll(/\s+/g, ' ')
  return createHash('sha1').update(text).digest('hex').slice(0, HASH_DIGITS)
}

/** SQL as in sql/, where everything of ours is `` `holdfast_...` ``, under the names that were chosen. */
export function renamed(sql: string, { database, name }: MysqlNames): string {
  const place = database === undefined ? '' : `\`${database.replaceAll('`', '``')}\`.`
  return sql.replaceAll(/`holdfast_(\w+)`/g, (_, what: string) => {
    const version = VERSIONS.get(what) ?? LINE_VERSION
    return `${place}\`${name}_${what}${TABLE_NAMES.includes(what) ? '' : `_${version}`}\``
  })
}

/**
 * What makes a procedure. Inside of it, names are those of the database that it is in, also if that was copied from
 * another one.
 */
export function procedureOf(sql: string, { database, name }: MysqlNames): string {
  const [head = '', ...body] = sql.split('(')
  return [renamed(head, { database, name }), ...body.map((part) => renamed(part, { database: undefined, name }))].join(
    '(',
  )
}

function stripped(sql: string): string {
  return sql.replaceAll(/(?:^|\s)--(?: .*)?$/gm, '').replaceAll(/\n\s*\n/g, '\n')
}

/** Each ends with a line of its own, as in the client of MySQL after `DELIMITER //`. */
function statementsIn(sql: string): string[] {
  return sql
    .split(/^\/\/$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '')
}
