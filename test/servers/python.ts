/**
 * A Python that has redis-py or Kazoo, for tests of interoperability: the one that is installed, or Debian's package,
 * unpacked into our cache. It runs small programs, in processes of their own.
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
/** A library of Python. */
interface Library {
  readonly name: string
  /** Debian's package. */
  readonly package: string
  /** As pip calls it. */
  readonly pip: string
  /** What has to work. */
  readonly check: string
}

export const REDIS_PY: Library = {
  name: 'redis-py',
  package: 'python3-redis',
  pip: 'redis',
  check: 'from redis.lock import Lock',
}
export const KAZOO: Library = {
  name: 'Kazoo',
  package: 'python3-kazoo',
  pip: 'kazoo',
  check: 'from kazoo.recipe.lock import Lock',
}

export class Python {
  readonly #path: string | undefined

  static async find(library: Library = REDIS_PY): Promise<Python | Missing> {
    const cached = join(cacheFolder(), library.package)
    const ways = [undefined, join(cached, 'usr', 'lib', 'python3', 'dist-packages')]
    const reasons: string[] = []
    for (const path of ways) {
      try {
        if (path !== undefined && !existsSync(cached)) await oneAtATime(() => fetch(library.package, cached))
        const python = new Python(path)
        await python.run(library.check)
        return python
      } catch (error) {
        reasons.push((error as Error).message.trim().split('\n').at(-1) ?? '')
      }
    }
    const remedy = `apt-get install ${library.package}, or pip install ${library.pip}`
    return new Missing(`no ${library.name} for python3 (${reasons.join('; ')}). To get it: ${remedy}`)
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
async function fetch(name: string, target: string): Promise<void> {
  if (existsSync(target)) return
  const work = await mkdtemp(`${target}-`)
  try {
    await fetchPackages([name], join(work, 'root'), join(work, 'apt'))
    await rename(join(work, 'root'), target).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}
