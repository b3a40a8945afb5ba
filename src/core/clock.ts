/**
 * The only door to time and to chance.
 *
 * Leases are counted in monotonic time, which no administrator and no NTP step can move. But the monotonic clock of
 * Linux and macOS stops while a laptop or a virtual machine sleeps, and the server's clock does not: a lease could be
 * over without our noticing. So, when wall time and monotonic time have come apart, the boot clock (which counts sleep,
 * and which cannot be set) is asked, and the larger of the two counts.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { uptime } from 'node:os'

/** Something that will happen, unless it is cancelled. */
export interface Timer {
  /** Forget it. No effect once it has fired. */
  cancel(): void
}

/** Where the time comes from. Users give one in tests only: `fakeClock()` of `holdfast/testing`. */
export interface Clock {
  /** Milliseconds, with fractions, that never go back and count the time asleep. The origin means nothing. */
  now(): number
  /**
   * How much of that was sleep, in which no timer ran: a timer that was set before is late by as much. Without it:
   * none.
   */
  asleepMs?(): number
  /** Call `fire` once, `delayMs` from now or a little later. Never keeps the process alive. */
  timer(delayMs: number, fire: () => void): Timer
  /**
   * Keep the process alive until cancelled: a caller awaits a lock or a call. (Our timers do not, and an engine's
   * sockets may not either: without this, a script that only waits for a lock would end, silently, before it gets it.)
   */
  stayAlive(): Timer
}

/** Where jitter and ids come from; seeded in the simulator. */
export interface Chance {
  /** From 0 up to, not including, 1. */
  fraction(): number
  /** 128 random bits in hexadecimal. */
  id(): string
}

/** The three clocks of a machine. */
export interface Sources {
  /** Milliseconds; stops in sleep; never steps. */
  monotonicMs(): number
  /** Milliseconds; counts sleep; any program with the right can set it. */
  wallMs(): number
  /** Milliseconds since boot; counts sleep; never steps; coarse (10 ms) and slow to read. */
  bootMs(): number
}

/** Wall and monotonic time have to come apart by this much before we look at the boot clock. */
const SUSPICIOUS_MS = 100
/** The boot clock is read in steps, and what it says may be this old. */
const BOOT_STEP_MS = 10
/** A smaller difference between two readings is rounding, not sleep. */
const ROUNDING_MS = 2 * BOOT_STEP_MS

/** Monotonic time that goes on during sleep. */
export function sleepless(sources: Sources): { now(): number; asleepMs(): number } {
  let wallAhead = sources.wallMs() - sources.monotonicMs()
  const bootAhead = sources.bootMs() - sources.monotonicMs()
  let asleepMs = 0
  const now = (): number => {
    const monotonic = sources.monotonicMs()
    const ahead = sources.wallMs() - monotonic
    // Apart in either direction: a clock that is set back on waking can hide a sleep.
    if (Math.abs(ahead - wallAhead) > SUSPICIOUS_MS) {
      const slept = sources.bootMs() - sources.monotonicMs() - bootAhead
      // Rather too long than too short: a lease must not be believed for longer than it lives.
      if (slept > asleepMs + ROUNDING_MS) asleepMs = slept + BOOT_STEP_MS
      wallAhead = ahead
    } else if (ahead < wallAhead) {
      // Slewed back, little by little: go along, or it would hide a short sleep later.
      wallAhead = ahead
    }
    return monotonic + asleepMs
  }
  return { now, asleepMs: () => asleepMs }
}

/** The longest delay a Node timer takes; a longer one would fire at once. */
const LONGEST_DELAY_MS = 2 ** 31 - 1

/** One handle for the whole process, referenced while any `stayAlive` is open. */
let anchor: NodeJS.Timeout | undefined
let anchored = 0

function stayAlive(): Timer {
  if (anchored === 0) {
    anchor ??= setInterval(() => {}, LONGEST_DELAY_MS)
    anchor.ref()
  }
  anchored += 1
  let wanted = true
  return {
    cancel() {
      if (!wanted) return
      wanted = false
      anchored -= 1
      if (anchored === 0) anchor?.unref()
    },
  }
}

/**
 * What `performance.now()` tells, as fast, and without loading the module that it is in: that takes a tenth of Node's
 * own start, and the command pays it each time.
 */
function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1_000_000
}

const { now: systemNow, asleepMs } = sleepless({
  monotonicMs,
  wallMs: () => Date.now(),
  bootMs: () => uptime() * 1000,
})

export const systemClock: Clock = {
  now: systemNow,
  asleepMs,
  timer(delayMs, fire) {
    const at = systemNow() + delayMs
    let handle: NodeJS.Timeout
    const set = (leftMs: number): void => {
      handle = setTimeout(
        leftMs > LONGEST_DELAY_MS ? () => set(at - systemNow()) : fire,
        Math.min(Math.max(leftMs, 0), LONGEST_DELAY_MS),
      )
      handle.unref()
    }
    set(delayMs)
    return { cancel: () => clearTimeout(handle) }
  },
  stayAlive,
}

/**
 * The wall clock of this host, in milliseconds since 1970: only to be compared with a server's clock, and shown to
 * people. Nothing is decided by it.
 */
export function wallClockMs(): number {
  return Date.now()
}

const ID_BYTES = 16
const pool = Buffer.alloc(ID_BYTES * 256)
let used = pool.length

/**
 * From where Node's module for cryptography has its chance, too. Loading that takes a sixth of Node's own start, and
 * the command would pay it each time. False: this system has no such device.
 */
function fillFromSystem(bytes: Uint8Array): boolean {
  let device: number
  try {
    device = openSync('/dev/urandom', 'r')
  } catch {
    return false
  }
  try {
    return fstatSync(device).isCharacterDevice() && readSync(device, bytes) === bytes.length
  } catch {
    return false
  } finally {
    closeSync(device)
  }
}

export const systemChance: Chance = {
  fraction: () => Math.random(),
  id() {
    if (used === pool.length) {
      if (!fillFromSystem(pool)) process.getBuiltinModule('node:crypto').randomFillSync(pool)
      used = 0
    }
    const id = pool.toString('hex', used, used + ID_BYTES)
    used += ID_BYTES
    return id
  },
}
