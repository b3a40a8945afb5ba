/**
 * One worker of once.processes.test.ts: told a key, it asks for it many times at once, and says what it was given. The
 * test decides at each gate whether the work goes on, and whether this process lives.
 */
import { connect } from '../../dist/src/index.js'
import { once } from '../../dist/src/recipes/once/index.js'
import { shops } from './once.shops.mjs'

const [url, ttl, kind, callers] = process.argv.slice(2)
const locks = await connect(url, { ttl: Number(ttl) })
const pay = once(locks, { keep: '1h', wait: '30s' })
const shop = kind === 'provider' ? undefined : await shops[kind](url)

const opening = new Map()
let gates = 0

/** Ask the test whether to go on. */
function gate(at, attempt) {
  const { key, id, number } = attempt
  const name = String(++gates)
  return new Promise((resolve) => {
    opening.set(name, resolve)
    process.send({ gate: name, at, key, id, number })
  })
}

async function work(attempt) {
  await gate('begun', attempt)
  const ask = (at) => gate(at, attempt)
  const value = shop ? await shop.order(attempt, ask) : { order: attempt.key, number: attempt.number }
  await gate('worked', attempt)
  return value
}

/** A client that retries until it is answered. A process that is stopped keeps files and rows busy for a while. */
async function answerOf(key) {
  for (;;) {
    try {
      return (await pay.run(key, { scope: 'shop', fingerprint: { key } }, work)).value
    } catch (error) {
      const worthRetrying = error.code === 'LEASE_LOST' || error.code === 'IN_PROGRESS' || error.transient === true
      if (!worthRetrying && !/timeout|locked|busy|deadlock/i.test(error.message)) throw error
    }
  }
}

async function run(key) {
  const values = await Promise.all(Array.from({ length: Number(callers) }, () => answerOf(key)))
  const distinct = [...new Set(values.map((value) => JSON.stringify(value)))]
  process.send({ answered: key, values: distinct })
}

process.on('message', ({ key, open }) => {
  if (open !== undefined) opening.get(open)?.()
  // The test fails with these words: an exit code alone says nothing.
  if (key !== undefined) run(key).catch((error) => process.send({ failed: error.stack }))
})
process.on('disconnect', () => process.exit())
process.send({ ready: true })
