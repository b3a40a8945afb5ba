/** Runs the examples of docs/fencing.md, as they are printed, as programs of their own. */
import { expect } from 'vitest'
import { blockWith, runProgramText } from '../documented.ts'

/**
 * The example that uses this guard. `before` gives the names that it takes for granted, `after` looks at what it did,
 * and closes.
 */
export async function expectExample(guard: string, before: string, after: string): Promise<void> {
  const { code } = blockWith('docs/fencing.md', `holdfast/guards/${guard}'`)
  const program = `import assert from 'node:assert/strict'\nimport { connect } from 'holdfast'\n${before}\n${code}\n${after}\nawait locks.close()\n`
  expect(await runProgramText(`guards-${guard}`, program)).toEqual({ exit: 0, said: '' })
}

/** An account in a SQLite database in memory. */
export const SQLITE_ACCOUNT = `
const own = process.getBuiltinModule('node:sqlite')
const { DatabaseSync } = own ?? (await import('@photostructure/sqlite'))
const database = new DatabaseSync(':memory:')
database.exec('create table account (id integer primary key, balance integer); insert into account values (7, 100)')
const locks = await connect('memory:')`
