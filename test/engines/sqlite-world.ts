/**
 * What tests of SQLite have in common: for each test a folder with a file of its own, engines in this process and in
 * others, and an end of all of them. Importing this is enough: `folder` and `file` are those of the test that runs.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach } from 'vitest'
import { type SqliteEngine, type SqliteOptions, sqlite } from '../../src/engines/sqlite/index.ts'
import { Children } from './sqlite.process.ts'

export let folder: string
export let file: string
/** Processes with an engine each. */
export const children: Children = new Children()
const engines: SqliteEngine[] = []

/** An engine in this process, on the file of the test unless told otherwise. */
export function open(options: SqliteOptions = {}): SqliteEngine {
  const engine = sqlite(options.database === undefined ? { file, ...options } : options)
  engines.push(engine)
  return engine
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'))
  file = join(folder, 'locks.db')
})

afterEach(async () => {
  for (const engine of engines.splice(0)) await engine[Symbol.asyncDispose]()
  await children.end()
  rmSync(folder, { recursive: true })
})
