/**
 * A market: in each round there is one ticket left, and ten buyers in eight processes who all want it at the same
 * moment. Then the sales are counted: has a buyer bought what was gone?
 *
 *     node examples/inventory/market.mjs postgres://127.0.0.1/shop [rounds]
 *     node examples/inventory/market.mjs mysql://app@127.0.0.1/shop
 *
 * It makes two tables, `tickets` and `sales`, in that database, and Holdfast makes its own for the leases. Ends with 1
 * if one of the safe ways has oversold, or the unsafe one has not.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { openShop } from './shops.mjs'
import { ways } from './ways.mjs'

const PROCESSES = 8
const BUYERS = 10

const [url, roundsGiven] = process.argv.slice(2)
const rounds = Number(roundsGiven ?? 100)

const shop = openShop(url)
await shop.query(
  'CREATE TABLE tickets (id int PRIMARY KEY, remaining int NOT NULL, version int NOT NULL, fence bigint NOT NULL)',
)
await shop.query('CREATE TABLE sales (ticket int NOT NULL, buyer int NOT NULL)')

const processes = await Promise.all(
  Array.from({ length: PROCESSES }, async (_, index) => {
    const child = fork(new URL('buyers.mjs', import.meta.url), [url])
    await answer(child)
    return {
      child,
      buyers: Array.from({ length: BUYERS }, (_, buyer) => buyer).filter((buyer) => buyer % PROCESSES === index),
    }
  }),
)

let tickets = 0
const results = []
for (const way of Object.keys(ways)) results.push(await tryOut(way))

for (const { child } of processes) child.disconnect()
await shop.locks.close()
await shop.close()

for (const { way, sold, oversold, perSecond } of results) {
  console.log(
    `${way.padEnd(10)} ${String(sold).padStart(5)} sold of ${rounds}, ${oversold} oversold, ${perSecond.toFixed(0)} tickets/s`,
  )
}
if (results.some(({ way, sold, oversold }) => (way === 'naive' ? oversold === 0 : oversold > 0 || sold !== rounds)))
  process.exitCode = 1
process.send?.(results)
if (process.connected) process.disconnect()

/** Many rounds, each with a ticket of its own. A round begins when the one before is over for all buyers. */
async function tryOut(way) {
  const first = tickets + 1
  for (let round = 0; round < rounds; round += 1) {
    tickets += 1
    await shop.query('INSERT INTO tickets VALUES (?, 1, 1, 0)', [tickets])
  }
  const startedAt = performance.now()
  for (let ticket = first; ticket <= tickets; ticket += 1) {
    await Promise.all(
      processes.map(async ({ child, buyers }) => {
        child.send({ way, ticket, buyers })
        await answer(child)
      }),
    )
  }
  const seconds = (performance.now() - startedAt) / 1000
  const among = `FROM sales WHERE ticket >= ${first}`
  const sold = await shop.value(`SELECT count(DISTINCT ticket) ${among}`)
  const oversold = (await shop.value(`SELECT count(*) ${among}`)) - sold
  return { way, sold, oversold, perSecond: rounds / seconds }
}

async function answer(child) {
  const [message] = await once(child, 'message')
  if (message.error !== undefined) throw new Error(message.error)
}
