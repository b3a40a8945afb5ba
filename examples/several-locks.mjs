// Transfers between accounts, each under two locks, in all directions: no deadlock, no lost cent.
import assert from 'node:assert/strict'
import { createLocks } from 'holdfast'
import { memory } from 'holdfast/memory'

const locks = createLocks(memory())
const accounts = new Map([
  ['ann', 100],
  ['bob', 100],
  ['cy', 100],
])

async function transfer(from, to, amount) {
  await locks.all([locks.mutex(`account:${from}`), locks.mutex(`account:${to}`)]).using(async (lease) => {
    const [before, other] = [accounts.get(from), accounts.get(to)]
    await new Promise((resolve) => setImmediate(resolve))
    accounts.set(from, before - amount)
    accounts.set(to, other + amount)
    assert.equal(lease.tokens.size, 2)
  })
}

const names = [...accounts.keys()]
await Promise.all(names.flatMap((from) => names.filter((to) => to !== from).map((to) => transfer(from, to, 10))))
assert.equal(
  [...accounts.values()].reduce((sum, balance) => sum + balance, 0),
  300,
)
console.log('balances', Object.fromEntries(accounts))
await locks.close()
