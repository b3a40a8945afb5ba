/**
 * What the start of the command takes beside that of Node alone: by the clock, and in processor time, of the command
 * and of all processes that it has waited for. On the Node that runs this, and on the newest 24.
 *
 * All take turns, so that whatever else the machine does meets all of them alike. The first turns are not counted: in
 * them the command keeps what was compiled of it. bash(1) measures, since Node does not tell what a child has used.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Missing } from '../test/servers/programs.ts'
import { findRuntime } from '../test/servers/runtimes.ts'
import { median } from './driver.ts'

const TURNS = 40
const WARM_UPS = 3

/** A Node that does what `run` cannot do without: it starts a command, and waits for its end. */
const STARTS_TRUE = "require('node:child_process').spawn('true').once('exit', process.exit)"
/** And with a shell beside the command, and one before it (docs/decisions/009). */
const STARTS_SHELLS = `
  const { spawn } = require('node:child_process')
  const beside = spawn('/bin/sh', ['-c', 'read -r order <&3'], { detached: true, stdio: ['ignore', 'ignore', 'ignore', 'pipe'] })
  const command = spawn('/bin/sh', ['-c', 'exec "$@" 3>&-', 'sh', 'true'], { stdio: ['ignore', 'ignore', 'ignore', beside.stdio[3]] })
  command.once('exit', () => beside.stdio[3].write('done\\n', () => process.exit()))`
/** Milliseconds are as fine as it gets. */
const TIMED = 'TIMEFORMAT="%3R %3U %3S"; time "$@" > /dev/null 2>&1 < /dev/null'

interface Measured {
  readonly wallMs: number
  readonly processorMs: number
}

export async function run(): Promise<void> {
  const newer = await findRuntime('node@24')
  await startUp(process.execPath)
  if (newer instanceof Missing) console.log(`\n  ${newer.reason}`)
  else await startUp(newer.path)
}

async function startUp(node: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
  const cli = new URL('../bundle/cli/holdfast.cjs', import.meta.url).pathname
  const contenders: Readonly<Record<string, readonly string[]>> = {
    'node -e 0': [node, '-e', '0'],
    'a Node that starts true': [node, '-e', STARTS_TRUE],
    'a Node that starts two shells, one of them for true': [node, '-e', STARTS_SHELLS],
    'holdfast --version': [node, cli, '--version'],
    'holdfast ls': [node, cli, 'ls'],
    'holdfast run KEY -- true': [node, cli, 'run', 'bench', '--', 'true'],
  }
  try {
    const figures = new Map(Object.keys(contenders).map((name) => [name, [] as Measured[]]))
    for (let turn = -WARM_UPS; turn < TURNS; turn += 1) {
      for (const [name, command] of Object.entries(contenders)) {
        const measured = timed(command, folder)
        if (turn >= 0) figures.get(name)?.push(measured)
      }
    }
    print(execFileSync(node, ['--version'], { encoding: 'utf8' }).trim(), figures)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function timed(command: readonly string[], folder: string): Measured {
  // Certificates take longer to read than all of Node's start.
  const { NODE_EXTRA_CA_CERTS: _, ...others } = process.env
  const env = { ...others, HOME: folder, XDG_CACHE_HOME: '', HOLDFAST_URL: `sqlite:${join(folder, 'locks.db')}` }
  const script = `${TIMED} || exit`
  const said = execFileSync('bash', ['-c', `{ ${script}; } 2>&1`, 'bash', ...command], { env, encoding: 'utf8' })
  const [wall = Number.NaN, user = Number.NaN, system = Number.NaN] = said.trim().split(' ').map(Number)
  return { wallMs: wall * 1000, processorMs: (user + system) * 1000 }
}

function print(version: string, figures: ReadonlyMap<string, readonly Measured[]>): void {
  console.log(`\nNode ${version}: medians of ${TURNS}, and how many times those of Node alone`)
  const [first = []] = figures.values()
  for (const [name, measured] of figures) {
    const columns = (['wallMs', 'processorMs'] as const).map((what) => {
      const own = median(measured.map((each) => each[what]))
      const times = own / median(first.map((each) => each[what]))
      return `${own.toFixed(0).padStart(6)} ms ${what === 'wallMs' ? 'by the clock' : 'of processor'} (${times.toFixed(2)})`
    })
    console.log(`  ${name.padEnd(54)}${columns.join('')}`)
  }
}
