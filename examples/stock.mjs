// Four shops sell the last eight seats to twenty buyers at once. One shop is killed while its buyers pay: their holds
// lapse, and a buyer on the waiting list gets one. No seat is sold twice.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once as event } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from 'holdfast'
import { stock } from 'holdfast/stock'

const [role, file, shop] = process.argv.slice(2)
if (role === 'shop') await sell(file, shop)
else await evening()

/** What every shop does: five buyers each, who want a seat in the stalls (A) and one on the balcony (B). */
async function sell(file, shop) {
  const locks = await connect(`sqlite:${file}`, { ttl: '2s' })
  const seats = stock(locks, 'concert:9', { hold: '3s' })
  const paid = event(process, 'paid')
  const buy = async (buyer) => {
    const cart = `${shop}-${buyer}`
    const hold = await seats.reserve(cart, { A: 1, B: 1 })
    if (hold === undefined) return 'sold out'
    process.send({ paying: cart })
    await paid
    return await hold.confirm()
  }
  const open = async () => {
    const outcomes = await Promise.all(Array.from({ length: 5 }, (_, buyer) => buy(buyer)))
    await paid
    await locks.close()
    process.send({ outcomes }, () => process.disconnect())
  }
  process.once('message', () => void open())
  process.on('message', (message) => message.paid && process.emit('paid'))
  process.send({ open: shop })
}

async function evening() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-stock-'))
  const file = join(folder, 'shop.db')
  const locks = await connect(`sqlite:${file}`)
  const seats = stock(locks, 'concert:9', { hold: '3s' })
  await seats.set({ A: 8, B: 8 })

  const shops = await Promise.all(
    ['north', 'east', 'south', 'west'].map(async (name) => {
      const child = fork(fileURLToPath(import.meta.url), ['shop', file, name])
      await event(child, 'message')
      return child
    }),
  )
  const paying = []
  const outcomes = []
  const allHeld = new Promise((resolve) => {
    for (const child of shops) {
      child.on('message', ({ paying: cart, outcomes: some }) => {
        if (cart !== undefined && paying.push(cart) === 8) resolve()
        if (some !== undefined) outcomes.push(...some)
      })
    }
  })
  for (const child of shops) child.send({ begin: true })
  await allHeld
  const { items, holds } = await seats.show()
  console.log(`${holds} holds; left: ${items.map(({ item, left }) => `${left} of ${item}`).join(', ')}`)
  assert.deepEqual(
    items.map(({ left }) => left),
    [0, 0],
  )

  const killed = shops.find((_, index) =>
    paying.some((cart) => cart.startsWith(['north', 'east', 'south', 'west'][index])),
  )
  const ended = shops.map((child) => event(child, 'exit'))
  killed.kill('SIGKILL')
  console.log('a shop is killed while its buyers pay; those of the others have paid')
  for (const child of shops) if (child !== killed) child.send({ paid: true })
  // This buyer waits: when the holds of the dead shop lapse, one of them is its own.
  const late = await seats.reserve('late buyer', { A: 1, B: 1 }, { wait: '20s' })
  assert.ok(late !== undefined, 'the waiting list has moved')
  console.log(`the late buyer holds ${JSON.stringify(late.items)}, and its payment takes: ${await late.confirm()}`)
  await Promise.all(ended)

  const after = await seats.show()
  const sold = outcomes.filter((outcome) => outcome === 'sold').length + 1
  console.log(`sold: ${sold}; the stock says ${after.items.map((item) => `${item.sold} of ${item.item}`).join(', ')}`)
  assert.ok(
    after.items.every((item) => item.sold === sold && item.sold <= item.stock),
    'none sold twice, none lost',
  )
  await locks.close()
  rmSync(folder, { recursive: true })
}
