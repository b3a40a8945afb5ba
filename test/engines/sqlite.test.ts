/** SQLite conforms, with clients in this process and in processes of their own. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { sqlite } from '../../src/engines/sqlite/index.ts'
import { builtModule } from '../built.ts'

conformance({ describe, it, afterAll }, 'sqlite', (): World => {
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
})

/** Every row, but the one of the file itself, and every wake file. */
async function stored(file: string): Promise<readonly string[]> {
  const database = (await loadDriver()).open(file)
  try {
    const rows = (table: string, column: string): string[] =>
      (database.prepare(`select ${column} as name from ${table}`).all() as { name: unknown }[]).map(
        ({ name }) => `${table} ${String(name)}`,
      )
    return [
      ...rows('holdfast_entry', 'id'),
      ...rows('holdfast_line', 'key'),
      ...rows('holdfast_client', 'client'),
      ...readdirSync(`${file}-wake`).map((name) => `wake file ${name}`),
    ]
  } finally {
    database.close()
  }
}
