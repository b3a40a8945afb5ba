/**
 * Selling the last ticket, in four ways. Each answers whether this buyer got it; `shop` hides what differs between the
 * databases (shops.mjs).
 *
 * The first is how it is often written, and it sells the ticket to all buyers who look before the first one writes. The
 * others never do.
 */

/** Look, then write: between the two, others look as well. */
export async function naive(shop, ticket, buyer) {
  const left = await shop.left(ticket)
  if (left === 0) return false
  await shop.query('UPDATE tickets SET remaining = ? WHERE id = ?', [left - 1, ticket])
  await shop.sell(ticket, buyer)
  return true
}

/** The row is ours until the transaction ends; the next buyer waits, and sees what we wrote. */
export async function byRowLock(shop, ticket, buyer) {
  return await shop.transaction(async (own) => {
    const found = await own.rowLock({ table: 'tickets', where: { id: ticket } })
    if (found.state !== 'locked') throw new Error(`ticket ${ticket} is ${found.state}`)
    if (found.rows[0].remaining === 0) return false
    await own.query('UPDATE tickets SET remaining = remaining - 1 WHERE id = ?', [ticket])
    await own.sell(ticket, buyer)
    return true
  })
}

/** Nothing is locked. Who was slower finds another version, looks again, and sees that it is gone. */
export async function byVersion(shop, ticket, buyer) {
  const change = (row) => (row.remaining > 0 ? { remaining: row.remaining - 1 } : undefined)
  const { state } = await shop.optimistic({
    table: 'tickets',
    where: { id: ticket },
    version: 'version',
    change,
    retries: 50,
  })
  if (state !== 'written') return false
  await shop.sell(ticket, buyer)
  return true
}

/**
 * One at a time, wherever they run. The token is checked where it matters: a buyer who lost the lease without noticing
 * writes nothing.
 */
export async function byLease(shop, ticket, buyer) {
  return await shop.locks.mutex(`ticket:${ticket}`).using(async (lease) => {
    if ((await shop.left(ticket)) === 0) return false
    const token = String(lease.token)
    const sql = 'UPDATE tickets SET remaining = remaining - 1, fence = ? WHERE id = ? AND fence <= ?'
    if ((await shop.query(sql, [token, ticket, token])) === 0) return false
    await shop.sell(ticket, buyer)
    return true
  })
}

export const ways = { naive, byRowLock, byVersion, byLease }
