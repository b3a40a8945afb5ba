/**
 * What would be published, looked at as a user gets it: packed, unpacked into an empty project without any optional
 * package, imported, compiled against, run; as an application that has modules and as one that has CommonJS, on the
 * oldest and on the newest Node.
 *
 * Prints what it does and ends with 1 at the first thing that is wrong.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'

const MUST = [
  'package.json',
  'README.md',
  'CHANGELOG.md',
  'LICENSE',
  'dist/src/index.js',
  'dist/src/index.d.ts',
  'dist/bundle/cli/holdfast.cjs',
  'monitoring/alerts.yml',
  'monitoring/dashboard.json',
]
const MAY =
  /^docs\/[\w/-]+\.(md|svg)$|^examples\/[\w/-]+\.mjs$|^[A-Z]+\.md$|^dist\/(src|conformance)\/|^dist\/bundle\/cli\/[\w-]+\.cjs$/
// A source map would name a source that is not in the package; what is emitted reads like the source.
const NEVER = /\.test\.|\.map$|(^|\/)test\//

/** What a careful user might write first. It is type-checked strictly, our declarations with it, and then run. */
const CONSUMER = `
import { createLocks, HoldfastError, type Lease } from 'holdfast'
import { memory } from 'holdfast/memory'

const locks = createLocks(memory(), { ttl: '30s' })
const token: bigint | null = await locks.mutex('order:42').using({ wait: '5s' }, async (lease: Lease) => {
  lease.assertHeld()
  return lease.token
})
await locks.close()
const isOurs: boolean = new Error('not ours') instanceof HoldfastError
if (token === null || isOurs) throw new Error('the published package does not work')
`

/** The same in CommonJS. */
const REQUIRING = `
const { createLocks, HoldfastError } = require('holdfast')
const { memory } = require('holdfast/memory')

async function main() {
  const locks = createLocks(memory(), { ttl: '30s' })
  const token = await locks.mutex('order:42').using({ wait: '5s' }, (lease) => lease.token)
  await locks.close()
  if (typeof token !== 'bigint') throw new Error('the published package does not work')
  if (!(new HoldfastError('ours') instanceof Error)) throw new Error('its errors are none')
}
main()
`

/** The application is run on each of these: the oldest and the newest that are supported. */
const NODES = ['node@20', 'node@26']

const work = mkdtempSync(join(tmpdir(), 'holdfast-package-'))
try {
  const { name, exports, peerDependencies = {} } = JSON.parse(readFileSync('package.json', 'utf8'))
  const tarball = pack()
  say('publint')
  bin('publint', 'run', tarball, '--strict')
  say('attw')
  bin('attw', tarball, '--profile', 'esm-only', '--no-definitely-typed', '--no-emoji')
  const doors = Object.keys(exports).filter((door) => !door.endsWith('.json'))
  const consumer = consume(
    tarball,
    doors.map((door) => door.replace(/^\./, name)),
    Object.keys(peerDependencies),
  )
  await onOtherNodes(consumer)
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
} finally {
  rmSync(work, { recursive: true, force: true })
}

function pack() {
  say('contents of the package')
  const [packed] = JSON.parse(
    npm(['pack', '--json', '--ignore-scripts', '--pack-destination', work], { stdio: ['ignore', 'pipe', 'inherit'] }),
  )
  const files = packed.files.map(({ path }) => path)
  const missing = MUST.filter((file) => !files.includes(file))
  const strange = files.filter((file) => (!MUST.includes(file) && !MAY.test(file)) || NEVER.test(file))
  // Left in dist by a source that is gone.
  const stale = files.filter(
    (file) =>
      file.endsWith('.js') && !MUST.includes(file) && !existsSync(file.replace(/^dist\//, '').replace(/js$/, 'ts')),
  )
  const wrong = Object.entries({ missing, strange, stale }).filter(([, list]) => list.length > 0)
  if (wrong.length > 0) throw new Error(wrong.map(([what, list]) => `${what}: ${list.join(', ')}`).join('\n'))
  console.log(`${files.length} files, ${(packed.size / 1024).toFixed(0)} kB packed`)
  return join(work, packed.filename)
}

function consume(tarball, doors, peers) {
  const home = join(work, 'consumer')
  mkdirSync(home)
  writeFileSync(join(home, 'package.json'), JSON.stringify({ name: 'consumer', private: true, type: 'module' }))
  say('an empty project installs it offline, with nothing optional')
  npm(['install', '--offline', '--no-audit', '--no-fund', '--omit=optional', '--omit=peer', tarball], {
    cwd: home,
    stdio: 'inherit',
  })

  say('what can be imported')
  for (const door of doors) importDoor(home, door, peers)

  say('a small program compiles against it, and runs')
  // Its door adds to the types of Fastify, and imports nothing of it that runs.
  link(home, 'fastify')
  writeFileSync(join(home, 'types.ts'), doors.map((door, i) => `export type * as door${i} from '${door}'`).join('\n'))
  writeFileSync(join(home, 'consumer.ts'), CONSUMER)
  const settings = {
    compilerOptions: {
      target: 'es2023',
      lib: ['es2023', 'esnext.disposable'],
      module: 'nodenext',
      strict: true,
      skipLibCheck: false,
      types: ['node'],
      typeRoots: [resolve('node_modules/@types')],
    },
    files: ['types.ts', 'consumer.ts'],
  }
  writeFileSync(join(home, 'tsconfig.json'), JSON.stringify(settings))
  bin('tsc', '-p', home)
  node(home, 'consumer.js')
  writeFileSync(join(home, 'requiring.cjs'), REQUIRING)
  node(home, 'requiring.cjs')

  say('its command runs')
  const command = join(home, 'node_modules/.bin/holdfast')
  console.log(execFileSync(command, ['--version'], { encoding: 'utf8' }).trim())
  return { home, command }
}

/** Modules, CommonJS and the command, on other releases of Node than ours. */
async function onOtherNodes({ home, command }) {
  const { findRuntime } = await import('../dist/test/servers/runtimes.js')
  for (const name of NODES) {
    say(`on ${name}: modules, CommonJS, and the command`)
    const found = await findRuntime(name)
    if ('reason' in found) {
      if (process.env.CI) throw new Error(found.reason)
      console.log(`left out: ${found.reason}`)
      continue
    }
    for (const file of ['consumer.js', 'requiring.cjs']) node(home, file, found.path)
    const version = execFileSync(found.path, [command, '--version'], { encoding: 'utf8' }).trim()
    console.log(`${found.version}: ${version}`)
  }
}

/** A door may need a package that the user brings, if it is declared as a peer. The main door needs none. */
function importDoor(home, door, peers) {
  writeFileSync(
    join(home, 'door.mjs'),
    `if (Object.keys(await import('${door}')).length === 0) throw new Error('it exports nothing')`,
  )
  try {
    node(home, 'door.mjs')
    console.log(door)
  } catch (error) {
    const [, peer] = /Cannot find package '([^']+)'/.exec(error.stderr) ?? []
    if (peer === undefined || !peers.includes(peer) || !door.includes('/'))
      throw new Error(`${door} cannot be imported:\n${error.stderr}`)
    link(home, peer)
    node(home, 'door.mjs')
    console.log(`${door}, given ${peer}`)
  }
}

function link(home, peer) {
  mkdirSync(dirname(join(home, 'node_modules', peer)), { recursive: true })
  symlinkSync(resolve('node_modules', peer), join(home, 'node_modules', peer))
}

function say(what) {
  console.log(`\n── ${what}`)
}

/** Silent unless it has something to complain about. */
function bin(program, ...args) {
  try {
    execFileSync(resolve('node_modules/.bin', program), args, { encoding: 'utf8' })
  } catch (error) {
    console.log(error.stdout)
    throw error
  }
}

function node(cwd, file, program = process.execPath) {
  execFileSync(program, [file], { cwd, encoding: 'utf8', stdio: 'pipe' })
}

function npm(args, options) {
  return execFileSync('npm', args, { encoding: 'utf8', ...options })
}
