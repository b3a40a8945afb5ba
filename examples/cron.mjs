// Three processes with the same job. Each tick is run by one of them; the one that dies in the middle is replaced.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connect } from 'holdfast'
import { cron } from 'holdfast/cron'

if (process.argv[2] === undefined) await fleet()
else await host(process.argv[2])

/** What runs on every host of a fleet. */
async function host(file) {
  const locks = await connect(`sqlite:${file}`, { signals: true })
  const jobs = cron(locks)
  jobs.add('report', '* * * * * *', { takeover: 1 }, async (run) => {
    process.send({ step: 'begun', tick: run.tick.toISOString(), attempt: run.attempt })
    await sleep(300, undefined, { signal: run.signal })
    process.send({ step: 'done', tick: run.tick.toISOString(), attempt: run.attempt })
  })
}

/** Starts three hosts, and kills the first one that begins to work. */
async function fleet() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-cron-'))
  const file = join(folder, 'locks.db')
  const told = []
  let killed
  const hosts = Array.from({ length: 3 }, () => {
    const child = fork(fileURLToPath(import.meta.url), [file])
    child.on('message', (run) => {
      told.push(run)
      if (killed !== undefined) return
      killed = run.tick
      child.kill('SIGKILL')
    })
    return child
  })
  const done = () => told.filter(({ step }) => step === 'done')
  const again = () => done().find(({ tick }) => tick === killed)
  for (let waitedMs = 0; waitedMs < 30_000 && !(again() && done().length >= 3); waitedMs += 50) await sleep(50)

  assert.equal(again()?.attempt, 2, 'the tick of the dead one was run again')
  const ticks = done().map(({ tick }) => tick)
  assert.equal(new Set(ticks).size, ticks.length, 'no tick is done twice')

  const locks = await connect(`sqlite:${file}`)
  const jobs = cron(locks)
  for await (const run of jobs.history('report'))
    console.log(run.tick.toISOString(), `attempt ${run.attempt}`, run.outcome, run.holder)
  await locks.close()
  const ended = hosts.filter((child) => child.signalCode === null).map((child) => once(child, 'exit'))
  for (const child of hosts) child.kill('SIGTERM')
  await Promise.all(ended)
  rmSync(folder, { recursive: true })
}
