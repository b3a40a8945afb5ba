/**
 * `holdfast/stock`: things of which there are so many, held for buyers while they pay. For tickets, seats, and whatever
 * must not be sold twice.
 *
 *     const seats = stock(locks, 'concert:9', { hold: '10m' })
 *     const hold = await seats.reserve(cart.id, { A: 2, B: 1 }, { wait: '30s' })
 *     if (hold === undefined) …            // sold out
 *     await hold.confirm()                 // 'sold', or 'lapsed' if it took too long
 *
 * Read stock.ts for what is asked and answered, and waiting-list.ts for who waits for whom. What a pool does is in
 * core/store-hold.ts, and the rule in core/pool-rule.ts.
 */
import type { Locks } from '../../locks.ts'
import type { Stock, StockOptions } from './options.ts'
import { StockOnPool } from './stock.ts'

export { StockError } from '../../core/errors.ts'
export type {
  CartLine,
  ChangeOptions,
  ConfirmByIdOptions,
  ConfirmOptions,
  Hold,
  Items,
  ReserveOptions,
  Stock,
  StockItem,
  StockOptions,
  StockView,
} from './options.ts'

/**
 * The stock of this name: the same for all processes that name it. Throws `UnsupportedError` where the engine keeps
 * none, and names the option that helps.
 */
export function stock(locks: Locks, name: string, options: StockOptions = {}): Stock {
  return new StockOnPool(locks, name, options)
}
