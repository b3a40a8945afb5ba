/**
 * Other runtimes than the one that runs the tests: newer releases of Node, Bun and Deno. npm has them as packages with
 * the bare program for each platform; they go into the cache of the servers.
 */
import { chmod } from 'node:fs/promises'
import { join } from 'node:path'
import { installFromNpm, keptFolder, newestVersion } from './kept.ts'
import { lastLine, Missing, programAt } from './programs.ts'

export interface Runtime {
  readonly path: string
  /** What comes before the file of a program. */
  readonly args: readonly string[]
  /** As it says itself: `node 24.21.0`. */
  readonly version: string
}

interface RuntimePackage {
  readonly name: string
  /** How its version begins; the newest one is taken. */
  readonly begins: string
  /** Where the program is in the package. */
  readonly program: string
  readonly args: readonly string[]
}

const { platform, arch } = process
const node = (major: string): RuntimePackage => ({
  name: `node-${platform}-${arch}`,
  begins: `${major}.`,
  program: 'bin/node',
  args: [],
})

/** By name. */
export const RUNTIMES: Readonly<Record<string, RuntimePackage>> = {
  'node@20': node('20'),
  'node@22': node('22'),
  'node@24': node('24'),
  'node@26': node('26'),
  bun: { name: `@oven/bun-${platform}-${arch}`, begins: '', program: 'bin/bun', args: [] },
  deno: {
    name: `@deno/${platform}-${arch}${platform === 'linux' ? '-glibc' : ''}`,
    begins: '',
    program: 'deno',
    args: ['run', '--allow-all'],
  },
}

export async function findRuntime(name: string): Promise<Runtime | Missing> {
  const runtime = RUNTIMES[name]
  if (runtime === undefined) throw new Error(`there is no ${name}; there are ${Object.keys(RUNTIMES).join(', ')}`)
  try {
    const folder = await keptFolder(name, (empty) => fetch(runtime, empty))
    const path = programIn(runtime, folder)
    const { version } = await programAt(path)
    return { path, args: runtime.args, version: named(name, version) }
  } catch (error) {
    return new Missing(`no ${name} (${lastLine(error)}). It comes from npm, which has to be reached`)
  }
}

async function fetch(runtime: RuntimePackage, folder: string): Promise<void> {
  const version = await newestVersion(runtime.name, runtime.begins)
  await installFromNpm(folder, [`${runtime.name}@${version}`])
  await chmod(programIn(runtime, folder), 0o755)
}

function programIn({ name, program }: RuntimePackage, folder: string): string {
  return join(folder, 'node_modules', name, program)
}

/** `v24.21.0`, `1.4.4` and `deno 2.9.6 (stable, ...)` say what they are in as many ways. */
function named(name: string, version: string): string {
  return `${name.replace(/@.*/, '')} ${/\d+\.\d+\.\d+/.exec(version)?.[0] ?? version}`
}
