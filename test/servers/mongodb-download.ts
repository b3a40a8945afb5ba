/**
 * A `mongod` by way of mongodb-memory-server, which knows where to fetch one for this machine. Only on request, since
 * it is some 100 MB: HOLDFAST_TEST_MONGOD_DOWNLOAD has the version. The package is installed beside it, not into this
 * project. One process of the machine at a time does this, and what was fetched is kept.
 */
import { execFile } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { oneAtATime } from './one-at-a-time.ts'
import { cacheFolder } from './user.ts'

const run = promisify(execFile)

const PACKAGE = 'mongodb-memory-server-core@10'
const LIMIT_MS = 10 * 60_000

const FETCH = `
const { MongoBinary } = require('mongodb-memory-server-core')
const [version, downloadDir] = process.argv.slice(1)
MongoBinary.getPath({ version, downloadDir }).then((path) => console.log(path))
`

/** The path of the program. */
export async function downloadedMongod(version: string): Promise<string> {
  return await oneAtATime(async () => {
    const folder = join(cacheFolder(), 'mongodb')
    await mkdir(folder, { recursive: true })
    const install = ['install', '--prefix', folder, '--no-save', '--no-audit', '--no-fund', '--ignore-scripts', PACKAGE]
    await run('npm', install, { timeout: LIMIT_MS })
    const { stdout } = await run(process.execPath, ['-e', FETCH, version, folder], { cwd: folder, timeout: LIMIT_MS })
    return stdout.trim().split('\n').at(-1) ?? ''
  })
}
