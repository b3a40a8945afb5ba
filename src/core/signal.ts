/**
 * An AbortSignal that tells the truth after a stall.
 *
 * A timer cannot fire while synchronous code runs. After a long computation, or a SIGSTOP, a signal that only a timer
 * aborts still says "not aborted", and the work goes on with a lease that is over. So a look at this signal makes
 * it look at the clock first. The look itself aborts, which also reaches `AbortSignal.any` and every listener; an
 * overridden getter alone would reach neither.
 */
const prototype = AbortSignal.prototype
const aborted = Object.getOwnPropertyDescriptor(prototype, 'aborted')?.get as (this: AbortSignal) => boolean
const reason = Object.getOwnPropertyDescriptor(prototype, 'reason')?.get as (this: AbortSignal) => unknown

/** A controller whose signal calls `look` before it answers. `look` aborts the controller if it is time. */
export function truthfulController(look: () => void): AbortController {
  const controller = new AbortController()
  Object.defineProperties(controller.signal, {
    aborted: {
      get(this: AbortSignal) {
        look()
        return aborted.call(this)
      },
    },
    reason: {
      get(this: AbortSignal) {
        look()
        return reason.call(this)
      },
    },
    throwIfAborted: {
      value(this: AbortSignal) {
        look()
        prototype.throwIfAborted.call(this)
      },
    },
  })
  return controller
}
