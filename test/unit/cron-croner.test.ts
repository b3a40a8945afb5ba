/** A program without croner: slots work, and a pattern says what to install. */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { builtModule } from '../built.ts'

let folder: string
beforeEach(() => {
  builtModule('src/index.ts')
  folder = mkdtempSync(join(tmpdir(), 'holdfast-croner-'))
  cpSync('dist/src', join(folder, 'src'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
})
afterEach(() => rmSync(folder, { recursive: true }))

test('croner is loaded only for patterns; where it is missing, the message says how to get it', async () => {
  const program = `
    import { createLocks } from './src/index.js'
    import { memory } from './src/engines/memory/index.js'
    import { cron } from './src/recipes/cron/index.js'
    const locks = createLocks(memory())
    const jobs = cron(locks)
    jobs.add('slots', { every: '100ms' }, () => { console.log('ran'); void jobs.close() })
    try { jobs.add('nightly', '0 3 * * *', () => {}) } catch (error) { console.log(error.message) }`
  writeFileSync(join(folder, 'program.mjs'), program)
  const { stdout } = await promisify(execFile)(process.execPath, [join(folder, 'program.mjs')])
  expect(stdout.split('\n')).toEqual([
    "the cron pattern of 'nightly' needs a package: npm install croner; { every: '1h' } needs none",
    'ran',
    '',
  ])
})
