/**
 * The way of a `take`, from one limit or several:
 *
 * 1. One call draws from the keys, on the server and by its clock (core/rate.ts). It is refused, or taken, or taken for
 *    a turn that lies ahead, if the caller is willing to wait for so long. No second call is made: a caller that waits
 *    has its turn.
 * 2. A turn ahead is slept for. What is booked stays booked, in the order of the calls of all processes.
 * 3. A caller that stops waiting gives its turn back, unless another has booked one behind it: that one was told when
 *    to go, and a third one would be given the same time.
 */
import { EngineError } from '../../core/errors.ts'
import type { Keeper } from '../../core/keeper.ts'
import { joinSignals, onAbort } from '../../core/on-abort.ts'
import type { Draw, DrawPart } from '../../core/store-take.ts'
import type { DrawStore } from '../../store/draws.ts'
import { type ReadRateLimit, readTakeOptions, type TakeOptions } from './options.ts'
import { decideInOutage, type LocalStates } from './outage.ts'
import { type RateVerdict, type TakenPart, verdictOf } from './verdict.ts'

/** What is taken from one key of one limit. */
export interface RatePart extends TakenPart {
  readonly limit: ReadRateLimit
  /** The key of the record in which the state of the limit is stored. */
  readonly recordKey: string
  readonly draws: DrawStore
  readonly local: LocalStates
}

/**
 * `partsOf` tells what is taken, for that cost and wait: of one store, and of different records. It throws for what
 * cannot be.
 */
export async function takeParts(
  call: string,
  options: TakeOptions,
  partsOf: (cost: number, waitMs: number) => readonly [RatePart, ...RatePart[]],
): Promise<RateVerdict> {
  const { cost, waitMs, signal } = readTakeOptions(call, options)
  const parts = partsOf(cost, waitMs)
  signal?.throwIfAborted()
  const { draws } = parts[0]
  const { keeper } = draws
  const bookUs = Math.floor(waitMs * 1000)
  const draw: Draw = { parts: parts.map(drawPartOf), bookUs }
  let verdict: RateVerdict
  let giveBack: (() => void) | undefined
  try {
    const drawn = await draws.draw(draw)
    verdict = verdictOf(parts, drawn, bookUs)
    if (verdict.delayMs === 0 && signal === undefined) return verdict
    if (drawn.taken) giveBack = () => giveBackAll(draws, draw, drawn)
  } catch (error) {
    if (!(error instanceof EngineError) || keeper.closing.aborted) throw error
    verdict = decideInOutage(parts, bookUs, keeper.clock.now(), error)
  }
  if (verdict.delayMs === 0 && signal?.aborted !== true) return verdict
  try {
    await sleep(keeper, verdict.delayMs, signal)
  } catch (error) {
    giveBack?.()
    throw error
  }
  return verdict
}

function drawPartOf({ recordKey, limit, cost }: RatePart): DrawPart {
  return { key: recordKey, rate: limit.rate, cost }
}

/** Not waited for, and not repeated: what is not given back is only spent in vain. */
function giveBackAll(
  draws: DrawStore,
  { parts }: Draw,
  { debts, nowUs }: { readonly debts: readonly number[]; readonly nowUs: number },
): void {
  for (const [index, part] of parts.entries()) {
    const atUs = nowUs - (nowUs % part.rate.stepUs)
    draws.giveBack(part, { atUs, debt: debts[index] as number, rate: part.rate }).catch(() => undefined)
  }
}

/** Rejects with the reason of `signal`, and when the locks are closed. */
function sleep({ clock, closing }: Keeper, ms: number, signal: AbortSignal | undefined): Promise<void> {
  const until = clock.now() + ms
  const alive = clock.stayAlive()
  const ending = joinSignals([signal, closing])
  return new Promise<void>((resolve, reject) => {
    // A timer of Node can fire a moment early. A turn that is taken early is one too many.
    const wait = (): { cancel(): void } =>
      clock.timer(until - clock.now(), () => {
        if (clock.now() < until) timer = wait()
        else resolve()
      })
    let timer = wait()
    const stop = (): void => {
      timer.cancel()
      reject(ending.signal.reason)
    }
    onAbort(ending.signal, stop)
    if (ending.signal.aborted) stop()
  }).finally(() => {
    alive.cancel()
    ending.stop()
  })
}
