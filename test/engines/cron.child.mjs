/**
 * A host with jobs. Its wall clock may be wrong: it knows by how much, and says what time it really is.
 *
 * `cron.child.mjs holdfast MODULES URL`: the two jobs of the test, by `cron()`. `cron.child.mjs set-nx MODULES URL`:
 * what people write by hand. Each line that it prints is a run that begins or ends, as JSON.
 */
import { writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const [, , how, modules, url] = process.argv
const aheadMs = Number(process.env.HOLDFAST_CLOCK_AHEAD ?? 0)
const { dice } = await import(`${modules}/../conformance/chance.js`)
const chance = dice(Number(process.env.HOLDFAST_SEED))
const SHORTEST_MS = 20
const LONGEST_MS = 350

/** Straight to the pipe: nothing is lost when this process is killed. */
const tell = (message) => writeSync(1, `${JSON.stringify(message)}\n`)

async function work(job, tick, attempt) {
  tell({ step: 'begin', job, tick, attempt, at: Date.now() - aheadMs })
  await sleep(SHORTEST_MS + chance.below(LONGEST_MS - SHORTEST_MS))
  tell({ step: 'end', job, tick, attempt })
}

async function holdfast() {
  const { connect } = await import(`${modules}/index.js`)
  const { cron } = await import(`${modules}/recipes/cron/index.js`)
  const locks = await connect(url, { ttl: '2s', signals: true })
  const jobs = cron(locks, { onError: (error, name) => tell({ step: 'error', job: name, error: String(error) }) })
  const options = { missed: 'all', overlap: 'queue' }
  for (const [job, takeover] of Object.entries({ once: 0, again: 50 })) {
    jobs.add(job, '* * * * * *', { ...options, takeover }, (run) => work(job, run.tick.getTime(), run.attempt))
  }
}

/** The tick is in the key, even; only the time for which it is kept is a guess. */
async function setNx() {
  const { Redis } = await import('ioredis')
  const { Cron } = await import('croner')
  const redis = new Redis(url)
  new Cron('* * * * * *', async () => {
    const tick = Math.floor(Date.now() / 1000) * 1000
    if ((await redis.set(`report:${tick}`, process.pid, 'PX', 1000, 'NX')) === 'OK') await work('set-nx', tick, 1)
  })
}

await (how === 'holdfast' ? holdfast() : setNx())
tell({ step: 'ready' })
