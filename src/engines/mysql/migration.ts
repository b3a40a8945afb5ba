/**
 * The tables and procedures: made on first use, or printed by `holdfast migrate --print` for a database in which the
 * application may not create anything.
 *
 * Fifty processes may come to an empty database at once, so they take turns, and only the first one finds something to
 * do. What is there is not touched. A later version that stores something else raises `format`, drops the procedures of
 * earlier ones, and renames the columns that plain statements use (see plain-statements.ts). A process of an earlier
 * version then finds its own procedures missing, comes here, and is refused.
 */

import { optionsOf } from '../../clients/mysql/connect.ts'
import { ERRNO, errnoOf } from '../../clients/mysql/errors.ts'
import { EngineError } from '../../core/errors.ts'
import { ENGINE } from './errors.ts'
import {
  checkNames,
  DEFAULT_NAME,
  type MysqlNames,
  PROCEDURES,
  procedureOf,
  renamed,
  TABLE_NAMES,
  TABLES,
} from './names.ts'
import { sources } from './sources.ts'

const FORMAT = 1

/** In this mode the text of procedures means the same everywhere; a procedure keeps the mode it was made in. */
const SQL_MODE = `SET SESSION sql_mode = 'STRICT_ALL_TABLES'`
const TURN_S = 30

/** For people and for the client of MySQL. It can be run again. */
export function migration(names: MysqlNames): string {
  const { database = 'your_database', name } = names
  const text = renamed(sources.join('\n'), names).replaceAll('CREATE PROCEDURE', 'CREATE PROCEDURE IF NOT EXISTS')
  const grants = TABLE_NAMES.map(
    (table) => `GRANT SELECT, INSERT, UPDATE, DELETE ON ${database}.${name}_${table} TO your_user;`,
  )
  return `-- Tables and procedures of Holdfast. Run it in the database that the application uses, as a user who may
-- create them. The user of your application then needs:
--
${[...grants, `GRANT EXECUTE ON ${database}.* TO your_user;`].map((grant) => `--     ${grant}`).join('\n')}
${SQL_MODE};
DELIMITER //
${text.trim()}
DELIMITER ;
`
}

/** The text for the tables that a URL means. */
export function migrationFor(url: string): string {
  return migration(checkNames({ database: undefined, name: optionsOf(url).name ?? DEFAULT_NAME }))
}

/** What a connection can be asked, one statement after the other. */
export type MysqlAsk = (sql: string) => Promise<readonly (readonly unknown[])[]>

/** Make what is missing. */
export async function firstUse(names: MysqlNames, ask: MysqlAsk): Promise<void> {
  const [[before] = []] = await ask('SELECT @@SESSION.sql_mode')
  const turn = await turnOf(names, ask)
  await ask(SQL_MODE)
  try {
    const [meta, row, ...others] = TABLES.map((sql) => renamed(sql, names)) as [string, string, ...string[]]
    for (const sql of [meta, row]) await ask(sql)
    await refuseNewer(names, ask)
    for (const sql of others) await ask(sql)
    for (const sql of PROCEDURES) await ask(procedureOf(sql, names)).catch(unlessItExists)
  } finally {
    await ask(`SET SESSION sql_mode = '${String(before)}'`)
    await ask(`DO RELEASE_LOCK('${turn}')`)
  }
}

/** The second process waits, and finds everything in place. One that has waited for too long tries all the same. */
async function turnOf({ name }: MysqlNames, ask: MysqlAsk): Promise<string> {
  const turn = `holdfast.first.${name}`
  await ask(`SELECT GET_LOCK('${turn}', ${TURN_S})`)
  return turn
}

async function refuseNewer(names: MysqlNames, ask: MysqlAsk): Promise<void> {
  const [[format] = []] = await ask(renamed('SELECT format FROM `holdfast_meta`', names))
  if (Number(format) === FORMAT) return
  const message =
    `its tables are of format ${String(format)}, and this Holdfast knows ${FORMAT}: ` +
    'a newer one made them, update this one'
  throw new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}

function unlessItExists(error: unknown): void {
  if (errnoOf(error) !== ERRNO.procedureExists) throw error
}
