/**
 * A Python that has redis-py, for tests of interoperability: the one that is installed, or Debian's package, unpacked
 * into our cache. It runs small programs, in processes of their own.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { fetchPackages } from './apt.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { Missing } from './programs.ts'
import { cacheFolder } from './user.ts'

const run = promisify(execFile)
const PACKAGE = 'python3-redis'

export class Python {
  readonly #path: string | undefined

  static async find(): Promise<Python | Missing> {
    const cached = join(cacheFolder(), PACKAGE)
    const ways = [undefined, join(cached, 'usr', 'lib', 'python3', 'dist-packages')]
    const reasons: string[] = []
    for (const path of ways) {
      try {
        if (path !== undefined && !existsSync(cached)) await oneAtATime(() => fetch(cached))
        const python = new Python(path)
        await python.run('from redis.lock import Lock')
        return python
      } catch (error) {
        reasons.push((error as Error).message.trim().split('\n').at(-1) ?? '')
      }
    }
    return new Missing(
      `no redis-py for python3 (${reasons.join('; ')}). To get it: apt-get install ${PACKAGE}, or pip install redis`,
    )
  }

  private constructor(path: string | undefined) {
    this.#path = path
  }

  /** What the program prints. Rejects if it fails. */
  async run(program: string): Promise<string> {
    const env = {
      ...process.env,
      PYTHONDONTWRITEBYTECODE: '1',
      ...(this.#path === undefined ? {} : { PYTHONPATH: this.#path }),
    }
    const { stdout } = await run('python3', ['-c', program], { env, timeout: 60_000 })
    return stdout.trim()
  }
}

/** Into a folder of its own first: another process that looks meanwhile finds all of it or nothing. */
async function fetch(target: string): Promise<void> {
  if (existsSync(target)) return
  const work = await mkdtemp(`${target}-`)
  try {
    await fetchPackages([PACKAGE], join(work, 'root'), join(work, 'apt'))
    await rename(join(work, 'root'), target).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}
