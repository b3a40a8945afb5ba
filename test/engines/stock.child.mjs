// A shop: it is given buyers, by the ids of their carts, and tells what became of each.
import { connect } from '../../dist/src/index.js'
import { stock } from '../../dist/src/recipes/stock/index.js'

const [url, name, holdMs] = process.argv.slice(2)
const locks = await connect(url, { ttl: '1s' })
const seats = stock(locks, name, { hold: Number(holdMs) })
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** `plan`: what the buyer does with what it holds. The same id has the same plan in every process. */
async function buy({ id, quantity, plan }) {
  const hold = await seats.reserve(id, { A: quantity }, plan === 'waits' ? { wait: '300ms' } : {})
  if (hold === undefined) return 'out'
  // A retry, after a process had died between the sale and the word of it.
  if (hold.state === 'sold') return 'sold'
  if (plan === 'leaves') return 'left'
  await pause(20 * Math.random())
  if (plan === 'cancels') return await hold.cancel()
  if (plan === 'extends') await hold.extend()
  return await hold.confirm({ late: plan === 'is late' ? 'if-available' : 'refuse' })
}

process.on('message', (buyer) => {
  buy(buyer).then(
    (outcome) => process.send({ id: buyer.id, outcome }),
    (error) => process.send({ id: buyer.id, failed: error.stack }),
  )
})
process.send('ready')
