/**
 * A host with a job of every second: `cron-host.child.mjs JOURNAL MODULES HOW`, with HOLDFAST_URL. Each run begins and
 * ends in the journal.
 *
 * HOW is `jobs`, by `cron()`, or `ticks`, by a scheduler of its own and `tick()`. As long as there is no file
 * `JOURNAL.open`, a run goes on until its signal aborts, and throws then.
 */
import { appendFileSync, existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const [, , journal, modules, how] = process.argv
const { connect } = await import(`${modules}/index.js`)
const { cron, tick } = await import(`${modules}/recipes/cron/index.js`)
const SECOND_MS = 1000

const note = (what, about) => appendFileSync(journal, `${JSON.stringify({ what, pid: process.pid, ...about })}\n`)

async function work({ tick: at, attempt, signal }) {
  const run = { tick: at.getTime(), attempt }
  note('begin', run)
  try {
    while (!existsSync(`${journal}.open`)) await sleep(5, undefined, { signal })
  } finally {
    note('end', run)
  }
}

async function jobs() {
  const locks = await connect(undefined, { signals: { grace: '100ms' } })
  const onError = (error) => note('error', { error: String(error) })
  cron(locks, { onError }).add('report', { every: SECOND_MS }, { takeover: 1 }, work)
}

async function ticks() {
  const locks = await connect(undefined, { ttl: SECOND_MS })
  const askAt = async (at) => {
    await sleep(at - Date.now())
    void askAt(at + SECOND_MS)
    note('ask', { tick: at })
    await tick(locks, 'report', at, { takeover: 1 }, work)
  }
  void askAt(Math.ceil(Date.now() / SECOND_MS) * SECOND_MS)
}

await (how === 'jobs' ? jobs() : ticks())
process.send({ url: 'ready' })
