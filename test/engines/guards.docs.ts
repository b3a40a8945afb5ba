/** Runs the examples of docs/fencing.md, as they are printed, as programs of their own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { builtModule } from '../built.ts'

/** Inside of the package, where `holdfast` is found by its own name. */
const FOLDER = join('dist', 'docs')

/**
 * The example that uses this guard. `before` gives the names that it takes for granted, `after` looks at what it did,
 * and closes.
 */
export async function expectExample(guard: string, before: string, after: string): Promise<void> {
  builtModule('src/index.ts')
  const blocks = [...readFileSync('docs/fencing.md', 'utf8').matchAll(/^```js\n(.*?)^```/gms)].map(
    ([, code = '']) => code,
  )
  const [code, ...others] = blocks.filter((block) => block.includes(`holdfast/guards/${guard}'`))
  expect([code === undefined, others.length]).toEqual([false, 0])
  const file = join(FOLDER, `${guard}.mjs`)
  mkdirSync(FOLDER, { recursive: true })
  writeFileSync(
    file,
    `import assert from 'node:assert/strict'\nimport { connect } from 'holdfast'\n${before}\n${code}\n${after}\nawait locks.close()\n`,
  )
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes: Buffer) => (said += bytes.toString()))
  const [exit] = (await once(child, 'close')) as [number | null]
  rmSync(file)
  expect({ exit, said }).toEqual({ exit: 0, said: '' })
}

/** An account in a SQLite database in memory. */
export const SQLITE_ACCOUNT = `
const own = process.getBuiltinModule('node:sqlite')
const { DatabaseSync } = own ?? (await import('@photostructure/sqlite'))
const database = new DatabaseSync(':memory:')
database.exec('create table account (id integer primary key, balance integer); insert into account values (7, 100)')
const locks = await connect('memory:')`
