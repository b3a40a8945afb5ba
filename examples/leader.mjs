// One leader at a time; when it resigns, the next one leads; an observer sees each of them.
import assert from 'node:assert/strict'
import { createLocks } from 'holdfast'
import { MemoryServer, memory } from 'holdfast/memory'

const server = new MemoryServer()
const fleet = ['red', 'blue'].map((holder) => createLocks(memory({ server }), { holder }))
const observer = createLocks(memory({ server }))

const seen = []
const watching = (async () => {
  for await (const leader of observer.election('scheduler').observe()) {
    if (leader !== undefined) seen.push(leader.holder)
    if (new Set(seen).size === 2) return
  }
})()

const terms = fleet.map((locks) =>
  locks.election('scheduler').lead(async (lease) => {
    const leader = await observer.election('scheduler').leader()
    assert.equal(leader.token, lease.token)
    while (!seen.includes(locks.holder)) await new Promise((resolve) => setTimeout(resolve, 1))
  }),
)
await Promise.all([...terms, watching])
console.log('leaders seen:', seen.join(', '))
for (const locks of [...fleet, observer]) await locks.close()
