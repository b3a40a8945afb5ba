/**
 * SQLite, the embedded default, beside what people use on one host today: proper-lockfile, and flock(1) for commands.
 */
import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lock as lockFile } from 'proper-lockfile'
import { sqlite } from '../src/engines/sqlite/index.ts'
import { createLocks } from '../src/index.ts'
import { callers, figure, median, percentile, race } from './driver.ts'
import { busy, nowNs, type Order } from './sqlite-child.ts'

/** As many again come first and are not counted: both processes are to have run for a while. */
const HAND_OFFS = 1500

export async function run(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
  try {
    await acquireAndRelease(folder, 1)
    await acquireAndRelease(folder, 100)
    await handOff(folder)
    await twoBusyProcesses(folder)
    await commands(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function acquireAndRelease(folder: string, count: number): Promise<void> {
  const locks = createLocks(sqlite({ file: join(folder, `callers-${count}.db`) }))
  const mutexes = Array.from({ length: count }, (_, caller) => locks.mutex(`key:${caller}`))
  const files = Array.from({ length: count }, (_, caller) => {
    const file = join(folder, `file-${count}-${caller}`)
    writeFileSync(file, '')
    return file
  })
  await race(`acquire + release, ${count} caller${count === 1 ? '' : 's'}, no contention`, [
    {
      name: 'proper-lockfile (no token, no line)',
      run: callers(count, async (caller) => {
        const release = await lockFile(files[caller] as string)
        await release()
      }),
    },
    {
      name: 'holdfast sqlite (fenced, ordered)',
      run: callers(count, async (caller) => {
        const lease = await mutexes[caller]?.acquire()
        await lease?.release()
      }),
    },
  ])
  await locks.close()
}

/**
 * From the call of release in one process to the grant in another, and what a bare message through a watched file
 * takes, by turns.
 */
async function handOff(folder: string): Promise<void> {
  const file = join(folder, 'hand-off.db')
  const locks = createLocks(sqlite({ file }))
  const child = await startChild(file)
  const tell = (order: Order): Promise<Record<string, string>> => ask(child, order)
  const wakeFile = join(folder, 'wake')
  writeFileSync(wakeFile, '')
  await tell({ do: 'watch', file: wakeFile })
  const fd = openSync(wakeFile, 'r+')
  const handOffs: number[] = []
  const messages: number[] = []
  for (let round = -HAND_OFFS; round < HAND_OFFS; round += 1) {
    const lease = await locks.mutex('hand-off').acquire()
    const granted = tell({ do: 'acquire' })
    while ((await locks.inspect('hand-off')).entries.length < 2) await new Promise((resolve) => setImmediate(resolve))
    const releasedAt = nowNs()
    void lease.release()
    const grantedAt = BigInt((await granted).at as string)
    await tell({ do: 'release' })

    const heard = once(child, 'message')
    const sentAt = nowNs()
    writeSync(fd, 'x', 0)
    const [message] = (await heard) as [{ at: string }]
    if (round < 0) continue
    handOffs.push(Number(grantedAt - releasedAt) / 1e6)
    messages.push(Number(BigInt(message.at) - sentAt) / 1e6)
  }
  closeSync(fd)
  await locks.close()
  child.kill()
  const ratio = median(handOffs) / median(messages)
  console.log('\nhand-off between two processes, from the call of release to the grant')
  figure('bare wake-file message, median', `${median(messages).toFixed(3)} ms`)
  figure('holdfast sqlite, median', `${median(handOffs).toFixed(3)} ms   ${ratio.toFixed(2)} x   (at most 5 x)`)
  figure('holdfast sqlite, 99th percentile', `${percentile(handOffs, 0.99).toFixed(3)} ms`)
}

async function twoBusyProcesses(folder: string): Promise<void> {
  const file = join(folder, 'busy.db')
  const locks = createLocks(sqlite({ file }))
  const child = await startChild(file)
  const ms = 3000
  const [other, own] = await Promise.all([
    ask(child, { do: 'busy', ms }) as Promise<unknown> as Promise<{ passes: number; worstMs: number }>,
    busy(() => locks.mutex('hand-off').acquire(), ms),
  ])
  child.kill()
  await locks.close()
  console.log('\ntwo busy processes on one key, 3 s')
  for (const [name, result] of [
    ['first', own],
    ['second', other],
  ] as const) {
    figure(`${name} process`, `${result.passes} passes, worst wait ${result.worstMs.toFixed(1)} ms`)
  }
}

/** A command under a lock, start of the program included: what a cron job or a shell script pays. */
async function commands(folder: string): Promise<void> {
  const cli = new URL('../bundle/cli/holdfast.cjs', import.meta.url).pathname
  const env = { ...process.env, HOLDFAST_URL: `sqlite:${join(folder, 'commands.db')}` }
  const timed = (program: string, args: readonly string[]): number => {
    const startedAt = performance.now()
    execFileSync(program, args, { env, stdio: 'ignore' })
    return performance.now() - startedAt
  }
  const times = { node: [] as number[], version: [] as number[], flock: [] as number[], holdfast: [] as number[] }
  for (let round = 0; round < 15; round += 1) {
    times.node.push(timed(process.execPath, ['-e', '0']))
    times.version.push(timed(process.execPath, [cli, '--version']))
    times.flock.push(timed('flock', [join(folder, 'flock'), 'true']))
    times.holdfast.push(timed(process.execPath, [cli, 'run', 'bench', '--', 'true']))
  }
  console.log('\none command under a lock, with the start of the program')
  figure('node -e 0 (the start of Node alone), median', `${median(times.node).toFixed(0)} ms`)
  figure(
    'holdfast --version (the start of the command alone), median',
    `${median(times.version).toFixed(0)} ms, ${(median(times.version) / median(times.node)).toFixed(2)} times Node`,
  )
  figure('flock(1), median', `${median(times.flock).toFixed(0)} ms`)
  figure(
    'holdfast run, median',
    `${median(times.holdfast).toFixed(0)} ms, ${(median(times.holdfast) - median(times.node)).toFixed(0)} ms above Node`,
  )
}

async function startChild(file: string): Promise<ChildProcess> {
  const child = fork(new URL('./sqlite-child.js', import.meta.url), [file])
  await once(child, 'message')
  return child
}

async function ask(child: ChildProcess, order: Order): Promise<Record<string, string>> {
  child.send(order)
  const [answer] = await once(child, 'message')
  return answer
}
