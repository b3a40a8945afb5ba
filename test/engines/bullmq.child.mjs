/**
 * A worker of BullMQ: `bullmq.child.mjs JOURNAL MODULES REDIS_URL OPTIONS`. What its jobs do goes to the journal. A job
 * that is held stays in its work until the file `JOURNAL.open` is there, or until it is told to stop.
 */
import { appendFileSync, existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'bullmq'
import { Redis } from 'ioredis'

const [, , journal, modules, url, options] = process.argv
const { connect } = await import(`${modules}/index.js`)
const { keyed } = await import(`${modules}/frameworks/bullmq.js`)

const note = (what, about) => appendFileSync(journal, `${JSON.stringify({ what, pid: process.pid, ...about })}\n`)
const locks = await connect(undefined, { ttl: '1s' })

async function work(job, _token, signal, lease) {
  const about = { job: job.id, user: job.data.user, fence: lease && String(lease.token) }
  note('begin', about)
  if (job.data.held) while (!signal.aborted && !existsSync(`${journal}.open`)) await sleep(5)
  else await sleep(10)
  note(signal?.aborted ? 'aborted' : 'end', about)
  return about.fence
}

const worker = new Worker(
  'mail',
  keyed(locks, ({ data }) => data.user, JSON.parse(options), work),
  {
    connection: new Redis(url, { maxRetriesPerRequest: null }),
    concurrency: 4,
    lockDuration: 1_500,
    stalledInterval: 500,
    maxStalledCount: 10,
    drainDelay: 1,
  },
)
worker.on('error', (error) => note('error', { message: error.message }))
worker.on('failed', (job, error) => note('failed', { job: job?.id, message: error.message, name: error.name }))
await worker.waitUntilReady()
process.send({ url: 'ready' })
