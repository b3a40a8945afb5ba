// One at a time, in order of arrival, with a token that only grows.
import assert from 'node:assert/strict'
import { createLocks } from 'holdfast'
import { memory } from 'holdfast/memory'

const locks = createLocks(memory())
const tokens = []
let inside = 0

await Promise.all(
  Array.from({ length: 5 }, () =>
    locks.mutex('till').using({ wait: '5s' }, async (lease) => {
      inside += 1
      assert.equal(inside, 1)
      tokens.push(lease.token)
      await new Promise((resolve) => setImmediate(resolve))
      inside -= 1
    }),
  ),
)

assert.deepEqual(
  tokens,
  tokens.toSorted((a, b) => Number(a - b)),
)
console.log('served in order, tokens', tokens.join(', '))
await locks.close()
