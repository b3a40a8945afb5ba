/**
 * `holdfast migrate`: the tables of an engine that keeps its lines in your database, for those whose application may
 * not create any.
 */
import { defaultUrl } from '../../connect.ts'
import { type CommandSpec, ownValue, UsageError } from '../args.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { print, printJson, STDOUT, write } from '../output.ts'

/** One row for each scheme whose engine has tables: the SQL that makes those that a URL means. */
const MIGRATIONS: Readonly<Record<string, () => Promise<{ migrationFor(url: string): string }>>> = {
  postgres: () => import('../../engines/postgres/migration.ts'),
  postgresql: () => import('../../engines/postgres/migration.ts'),
  mysql: () => import('../../engines/mysql/migration.ts'),
  mariadb: () => import('../../engines/mysql/migration.ts'),
}

export const command: CommandSpec = {
  usage: '[--print] [options]',
  takes: { least: 0, most: 0 },
  runs: false,
  options: { print: { help: 'only print the SQL; nothing is connected to' } },
  examples: [
    [
      'holdfast migrate --print --url postgres:// > holdfast.sql',
      'for the administrator who may create tables: psql -f holdfast.sql',
    ],
    ['holdfast migrate --print --url "postgres://?schema=locks"', 'in a schema of their own'],
    ['holdfast migrate --url postgres://admin@db/app', 'make them now'],
  ],
  run: async (input) => {
    const url = input.value('url') ?? defaultUrl()
    const sql = await textFor(url)
    if (!input.has('print')) {
      await using opened = await open(input)
      // They are made on first use, and this is one.
      await opened.ask((locks) => locks.inspect('holdfast migrate'))
    }
    if (input.json) printJson(STDOUT, input.command, { printed: input.has('print'), sql })
    else if (input.has('print')) write(STDOUT, sql)
    else print('the tables are there')
    return EXITS.ok.code
  },
}

async function textFor(url: string): Promise<string> {
  const scheme = url.split(':')[0]?.toLowerCase() ?? ''
  const load = ownValue(MIGRATIONS, scheme)
  if (load === undefined)
    throw new UsageError(`'${scheme}:' has no tables to make; schemes that have: ${Object.keys(MIGRATIONS).join(', ')}`)
  const { migrationFor } = await load()
  try {
    return migrationFor(url)
  } catch (error) {
    throw error instanceof TypeError ? new UsageError(error.message, { cause: error }) : error
  }
}
