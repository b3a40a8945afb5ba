/**
 * One worker of guards.processes.test.ts: told to, it takes the lock, reads the number, says so, and writes it back one
 * higher when it is told to go on.
 */
import { StaleTokenError } from '../../dist/src/core/errors.js'
import { sqlite } from '../../dist/src/engines/sqlite/index.js'
import { createLocks } from '../../dist/src/locks.js'
import { backends } from './guards.backends.mjs'

const [file, ttlMs, backend, where] = process.argv.slice(2)
const locks = createLocks(sqlite({ file }), { ttl: Number(ttlMs) })
const resource = await backends[backend](where)

const told = []
let wake
process.on('message', (message) => {
  told.push(message)
  wake?.()
})
process.on('disconnect', () => process.exit())

async function next() {
  while (told.length === 0) {
    await new Promise((resolve) => {
      wake = resolve
    })
  }
  return told.shift()
}

/**
 * A process that was stopped while it wrote to the file of the locks keeps it busy for longer than the ttl. That is
 * told as an outage, and worth another try.
 */
async function acquire(key) {
  for (;;) {
    try {
      return await locks.mutex(key).acquire()
    } catch (error) {
      if (!error.transient) throw error
    }
  }
}

async function work(key) {
  const lease = await acquire(key)
  const shown = key === 'guarded' ? lease : undefined
  try {
    const before = await resource.read(key, shown)
    // As careful as one can be without a guard.
    lease.assertHeld()
    process.send('read')
    await next()
    await resource.write(key, before + 1, shown)
    return 'wrote'
  } catch (error) {
    if (error instanceof StaleTokenError) return 'refused'
    if (error.code === 'LEASE_LOST') return 'lost'
    throw error
  } finally {
    await lease.release()
  }
}

process.send('ready')
try {
  for (;;) process.send(await work(await next()))
} catch (error) {
  // The test fails with these words: an exit code alone says nothing.
  process.send({ failed: error.stack }, () => process.exit(1))
}
