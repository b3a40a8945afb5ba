/**
 * A host with a task of node-cron: `node-cron.child.mjs JOURNAL MODULES`, with HOLDFAST_URL. Each run begins and ends
 * in the journal; a run that finds the file `JOURNAL.held` stays in its work.
 */
import { appendFileSync, existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { schedule } from 'node-cron'

const [, , journal, modules] = process.argv
const { connect } = await import(`${modules}/index.js`)
const { coordinator } = await import(`${modules}/recipes/cron/index.js`)

const note = (what, date) => appendFileSync(journal, `${JSON.stringify({ what, pid: process.pid, tick: +date })}\n`)
const locks = await connect(undefined, { ttl: '2s' })

schedule(
  '* * * * * *',
  async ({ date }) => {
    note('begin', date)
    while (existsSync(`${journal}.held`)) await sleep(5)
    note('end', date)
  },
  { name: 'report', distributed: true, runCoordinator: coordinator(locks) },
)
process.send({ url: 'ready' })
