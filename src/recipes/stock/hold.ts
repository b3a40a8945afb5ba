/** One hold, as the caller that has reserved it sees it. What counts is in the pool, under its id. */
import type { Duration } from '../../core/duration.ts'
import { checkOptions } from '../../core/options.ts'
import { showAs } from '../../core/show.ts'
import type { PoolLine } from '../../core/store-hold.ts'
import type { PoolReply } from '../../core/store-requests.ts'
import { itemsOf } from './items.ts'
import { CONFIRM_OPTIONS, type ConfirmOptions, type Hold, type Stock } from './options.ts'

/** What a hold asks its stock. */
export interface StockOfHold extends Pick<Stock, 'confirm' | 'cancel'> {
  extendStep(id: string, duration?: Duration): Promise<PoolReply>
}

export class StockHold implements Hold {
  readonly id: string
  readonly items: Readonly<Record<string, number>>
  readonly #stock: StockOfHold
  readonly #now: () => number
  #state: 'held' | 'sold'
  /** By the clock of this process, counted from when the request was sent: the server lets it live for longer. */
  #until: number

  static {
    showAs('Hold', StockHold)
  }

  constructor(
    stock: StockOfHold,
    now: () => number,
    id: string,
    lines: readonly PoolLine[],
    state: 'held' | 'sold',
    until: number,
  ) {
    this.#stock = stock
    this.#now = now
    this.id = id
    this.items = itemsOf(lines)
    this.#state = state
    this.#until = until
  }

  get state(): 'held' | 'sold' {
    return this.#state
  }

  get remainingMs(): number {
    return this.#state === 'sold' ? 0 : Math.max(0, this.#until - this.#now())
  }

  async extend(duration?: Duration): Promise<'held' | 'sold' | 'lapsed'> {
    const sentAt = this.#now()
    const reply = await this.#stock.extendStep(this.id, duration)
    if (reply.state === 'sold') this.#state = 'sold'
    this.#until = reply.state === 'held' ? sentAt + reply.livesForMs : 0
    return reply.state === 'held' || reply.state === 'sold' ? reply.state : 'lapsed'
  }

  async confirm(options: ConfirmOptions = {}): Promise<'sold' | 'lapsed'> {
    checkOptions('confirm()', options, CONFIRM_OPTIONS)
    // Items are for a hold that has lapsed, and may be sold all the same.
    const outcome = await this.#stock.confirm(
      this.id,
      options.late === undefined ? {} : { ...options, items: this.items },
    )
    if (outcome === 'sold') this.#state = 'sold'
    else this.#until = 0
    return outcome
  }

  async cancel(): Promise<'cancelled' | 'sold' | 'lapsed'> {
    const outcome = await this.#stock.cancel(this.id)
    if (outcome === 'sold') this.#state = 'sold'
    else this.#until = 0
    return outcome
  }

  toJSON(): object {
    const { id, items, state, remainingMs } = this
    return { id, items: { ...items }, state, remainingMs: Math.floor(remainingMs) }
  }
}
