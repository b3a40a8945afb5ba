/**
 * A process that takes from limits as fast as it can, for so long. Its wall clock may be wrong.
 *
 * `rate-limit.child.mjs MODULES URL LIMITS SECONDS`: `LIMITS` is JSON, by name: options of `rateLimit()`, and the
 * `cost` of each take. At the end it prints what the server has answered, as JSON: for each limit, times of the server
 * (us), and how many were let through, or 0.
 */
import { once } from 'node:events'
import { writeSync } from 'node:fs'

const [, , modules, url, limits, seconds] = process.argv
const CALLERS = 20

const { connect } = await import(`${modules}/index.js`)
const { rateLimit } = await import(`${modules}/recipes/rate-limit/index.js`)
const locks = await connect(url)
const answered = Object.fromEntries(Object.keys(JSON.parse(limits)).map((name) => [name, []]))

// What the server answers, with the time at which it has decided.
const { store } = locks.engine
const take = store.take.bind(store)
store.take = async (draws, signal) => {
  const answers = await take(draws, signal)
  for (const [index, { taken, nowUs }] of answers.entries()) {
    const { key, cost } = draws[index].parts[0]
    const name = key.slice(key.lastIndexOf('@') + 1)
    const times = answered[name]
    // Of many refusals in a row, one in each millisecond.
    if (cost > 0 && (taken || nowUs > (times.at(-1)?.[0] ?? 0) + 1000)) times.push([nowUs, taken ? cost : 0])
  }
  return answers
}

const limiters = Object.entries(JSON.parse(limits)).map(([name, { cost, ...options }]) => {
  return { cost, limiter: rateLimit(locks, { name, ...options }) }
})
for (const { limiter } of limiters) await limiter.peek('key')
writeSync(1, '"ready"\n')
await once(process.stdin, 'data')
process.stdin.destroy()
const until = performance.now() + Number(seconds) * 1000
const flood = async ({ limiter, cost }) => {
  while (performance.now() < until) {
    const { allowed } = await limiter.take('key', { cost })
    // Other processes have their turn, too.
    if (!allowed) await new Promise((resolve) => setTimeout(resolve, 1))
  }
}
await Promise.all(limiters.flatMap((one) => Array.from({ length: CALLERS }, () => flood(one))))
writeSync(1, `${JSON.stringify(answered)}\n`)
await locks.close()
