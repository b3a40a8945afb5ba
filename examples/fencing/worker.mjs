/**
 * One worker of the demonstration, a process of its own. It takes the lock, reads the balance, thinks, and writes back
 * what it made of it. It does everything a careful program does without a guard: it looks at its lease right before it
 * writes. That is not enough: between the look and the write, it can be stopped for as long as the world likes.
 */
import { connect, StaleTokenError } from 'holdfast'
import { guard } from 'holdfast/guards/sqlite'
import { openAccount } from './account.mjs'

const [name, locksUrl, file, mode, deposit] = process.argv.slice(2)
const account = await openAccount(file)
const guarded = mode === 'guarded' ? guard() : undefined
const locks = await connect(locksUrl, { ttl: '600ms', holder: name })

/** What the director says next. */
const told = () => new Promise((resolve) => process.once('message', resolve))

const lease = await locks.mutex('account:7').acquire()
process.send({ did: 'took', token: String(lease.token) })

const before = account.inside(() => {
  guarded?.read(account.database, lease)
  return account.balance()
})
lease.assertHeld()
process.send({ did: 'read', balance: before })
await told()

// Here it is stopped, and wakes up without knowing.
try {
  account.inside(() => {
    guarded?.write(account.database, lease)
    account.setBalance(before + Number(deposit))
  })
  process.send({ did: 'wrote', balance: before + Number(deposit), held: lease.held })
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error
  process.send({ did: 'refused', offered: String(error.offered), seen: String(error.seen), held: lease.held })
}
await lease.release()
await locks.close()
process.disconnect()
