/** The world of the conformance cases on SQLite: a file, with clients in this process and in processes of their own. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { World } from '../../conformance/index.ts'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { sqlite } from '../../src/engines/sqlite/index.ts'
import { builtModule } from '../built.ts'

export function sqliteFileWorld(): World {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-'))
  const file = join(folder, 'locks.db')
  const module = builtModule('src/engines/sqlite/index.ts')
  return {
    engine: () => sqlite({ file }),
    actor: () => ({ module, export: 'sqlite', options: { file } }),
    leftovers: () => stored(file),
    lacks: { restart: 'it has no server' },
    close: () => rmSync(folder, { recursive: true }),
  }
}

/**
 * Every row, but the one of the file itself, and every wake file that has no row of an engine: an engine makes its own
 * some time after it is written down.
 */
async function stored(file: string): Promise<readonly string[]> {
  const database = (await loadDriver()).open(file)
  try {
    const rows = (table: string, column: string): string[] =>
      (database.prepare(`select ${column} as name from ${table}`).all() as { name: unknown }[]).map(
        ({ name }) => `${table} ${String(name)}`,
      )
    const hasRecords = database.prepare("select 1 from sqlite_schema where name = 'holdfast_record'").all()
    const engines = rows('holdfast_client', 'client')
    const wakeFiles = readdirSync(`${file}-wake`).filter((name) => !engines.includes(`holdfast_client ${name}`))
    return [
      ...rows('holdfast_entry', 'id'),
      ...rows('holdfast_line', 'key'),
      ...(hasRecords.length === 0 ? [] : rows('holdfast_record', 'key')),
      ...engines,
      ...wakeFiles.map((name) => `wake file ${name}`),
    ]
  } finally {
    database.close()
  }
}
