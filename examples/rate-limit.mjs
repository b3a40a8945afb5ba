// A partner takes 50 calls in a second, 10 at once. Four processes call it as fast as they are allowed, two that try
// again when they are told to, and two that wait for their turn. Together they keep the limit.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connect } from 'holdfast'
import { rateLimit } from 'holdfast/rate-limit'

const LIMIT = { limit: 50, per: '1s', burst: 10 }
const [, , file, how] = process.argv

if (file === undefined) await partner()
else await caller()

/** What every process does, until it is told to stop. */
async function caller() {
  const locks = await connect(`sqlite:${file}`)
  const calls = rateLimit(locks, { ...LIMIT, name: 'partner' })
  let stopped = false
  process.on('message', () => {
    stopped = true
  })
  process.send('ready')
  while (!stopped) {
    const { allowed, retryAfterMs } = await calls.take('all of us', how === 'waits' ? { wait: '2s' } : {})
    if (allowed) process.send('call')
    else await sleep(retryAfterMs)
  }
  await locks.close()
  process.disconnect()
}

/** Counts who has called. */
async function partner() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-rate-'))
  const counts = {}
  const children = await Promise.all(
    ['waits', 'waits', 'tries again', 'tries again'].map(async (kind, index) => {
      const child = fork(fileURLToPath(import.meta.url), [join(folder, 'locks.db'), kind])
      const name = `process ${index + 1}, which ${kind}`
      counts[name] = 0
      await once(child, 'message')
      child.on('message', () => {
        counts[name] += 1
      })
      return child
    }),
  )
  const from = performance.now()
  await sleep(2000)
  const ended = children.map((child) => once(child, 'exit'))
  for (const child of children) child.send('stop')
  await Promise.all(ended)
  const seconds = (performance.now() - from) / 1000

  for (const [name, count] of Object.entries(counts)) console.log(`${name}: ${count} calls`)
  const all = Object.values(counts).reduce((sum, count) => sum + count, 0)
  // It may have begun a moment before the first second did.
  const most = LIMIT.limit * (seconds + 1) + LIMIT.burst
  console.log(`${all} calls in ${seconds.toFixed(1)} s, of at most ${Math.floor(most)}`)
  assert(all <= most, 'the limit was kept')
  assert(all > LIMIT.burst, 'and calls were made')
  rmSync(folder, { recursive: true })
}
