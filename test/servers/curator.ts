/**
 * Curator, the client of ZooKeeper for Java, for tests of interoperability: Debian's package, unpacked into our cache.
 * It runs small programs, in processes of their own. They are written in BeanShell, which needs no compiler.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { fetchPackages } from './apt.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { Missing, type Program } from './programs.ts'
import { cacheFolder } from './user.ts'
import type { ZooKeeperProgram } from './zookeeper.ts'

const run = promisify(execFile)
const PACKAGES = ['libcurator-recipes-java', 'bsh']
const NEEDED = [
  ...['curator-client', 'curator-framework', 'curator-recipes', 'bsh', 'guava', 'failureaccess'],
  ...['jackson-databind', 'jackson-core', 'jackson-annotations'],
]
const JARS = ['usr', 'share', 'java']

export class Curator {
  readonly #java: Program
  readonly #classPath: string

  static async find({ java, classPath }: ZooKeeperProgram): Promise<Curator | Missing> {
    const cached = join(cacheFolder(), 'curator')
    try {
      if (!existsSync(cached)) await oneAtATime(() => fetch(cached))
      // What this machine has already was not fetched. A jar that is in neither place is passed over by Java.
      const places = [join(cached, ...JARS), join('/', ...JARS)]
      const jars = NEEDED.flatMap((jar) => places.map((place) => join(place, `${jar}.jar`)))
      return new Curator(java, [...jars, classPath].join(':'))
    } catch (error) {
      const why = (error as Error).message.trim().split('\n').at(-1) ?? ''
      return new Missing(`no Curator (${why}). To get it: apt-get install ${PACKAGES.join(' ')}`)
    }
  }

  private constructor(java: Program, classPath: string) {
    this.#java = java
    this.#classPath = classPath
  }

  /** What the program prints. Rejects if it fails. */
  async run(program: string): Promise<string> {
    const options = ['-XX:TieredStopAtLevel=1', '-Xshare:auto', '-Xmx64m', '-cp', this.#classPath]
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-curator-'))
    try {
      const file = join(folder, 'program.bsh')
      await writeFile(file, program)
      const env = { ...process.env, ...this.#java.env }
      const { stdout } = await run(this.#java.path, [...options, 'bsh.Interpreter', file], { env, timeout: 90_000 })
      return stdout.trim()
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  }
}

/** Into a folder of its own first: another process that looks meanwhile finds all of it or nothing. */
async function fetch(target: string): Promise<void> {
  if (existsSync(target)) return
  const work = await mkdtemp(`${target}-`)
  try {
    await fetchPackages(PACKAGES, join(work, 'root'), join(work, 'apt'))
    await rename(join(work, 'root'), target).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}
