/** One process of the market: its buyers all go for the ticket that they are told of, at once. */
import { openShop } from './shops.mjs'
import { ways } from './ways.mjs'

const shop = openShop(process.argv[2])

async function buy({ way, ticket, buyers }) {
  try {
    await Promise.all(buyers.map((buyer) => ways[way](shop, ticket, buyer)))
    process.send({ done: ticket })
  } catch (error) {
    process.send({ error: error.stack })
  }
}

process.on('message', (order) => void buy(order))
process.on('disconnect', () => process.exit())
process.send({ ready: true })
