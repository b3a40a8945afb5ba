/**
 * Waits for the jobs that an event has set off: until no promise job is pending, and no tick.
 *
 * `setImmediate` would tell, but it takes a turn of the event loop, with its system calls. Node works through all
 * ticks, then all promise jobs, then ticks again, until neither is left. So ticks are counted here, and a tick of our
 * own that finds no other one, neither waiting nor run since promise jobs were last used up, knows that it is alone.
 *
 * Now and then the event loop gets its turn all the same: only then does Node report rejections that were not
 * handled.
 */

/** How often it is asked for before the event loop gets a turn. */
const TURNS_APART = 32

const { nextTick } = process
let waiting = 0
let ran = false
let asked = 0

process.nextTick = (job: (...given: unknown[]) => void, ...given: unknown[]): void => {
  waiting += 1
  nextTick(() => {
    waiting -= 1
    ran = true
    job(...given)
  })
}

export function afterPendingJobs(go: () => void): void {
  asked += 1
  if (asked % TURNS_APART === 0) {
    setImmediate(go)
    return
  }
  const look = (): void => {
    if (waiting === 0 && !ran) {
      go()
      return
    }
    ran = false
    again()
  }
  // By way of a promise job, so that all those there are now are used up before: a tick by itself would come before
  // them.
  const again = (): void => queueMicrotask(() => nextTick(look))
  again()
}
