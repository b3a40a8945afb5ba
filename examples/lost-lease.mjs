// What your work sees when its lease is lost: the clock is moved by hand, so this takes no time.
import assert from 'node:assert/strict'
import { createLocks, LeaseLostError } from 'holdfast'
import { fakeClock, memory } from 'holdfast/testing'

const clock = fakeClock()
const locks = createLocks(memory({ clock }), { clock, ttl: '10s' })

await assert.rejects(
  locks.mutex('report').using(async (lease) => {
    await clock.advance('5m')
    assert.equal(lease.held, true) // renewed thirty times
    clock.stall('11s') // a garbage collection, a SIGSTOP, a closed laptop
    assert.equal(lease.held, false)
    assert.equal(lease.signal.aborted, true)
    return 'the work "succeeded", but the lease was over'
  }),
  LeaseLostError,
)
console.log('the loss was noticed at the first look')
await locks.close()
