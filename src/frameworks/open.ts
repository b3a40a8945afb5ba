/**
 * Locks as a framework opens and ends them: by URL, on an engine, or those that the application has made itself. What
 * was opened here is drained and closed here; what was given is left to its giver.
 *
 * The engine is asked once before the application starts. What no later try can mend (a missing driver, a wrong
 * password) keeps the application from starting, with its message: it would fail in every request otherwise. A server
 * that is away for a while does not; it may come back before the first request.
 */
import { connect } from '../connect.ts'
import { graceMsOf } from '../core/drain.ts'
import type { Duration } from '../core/duration.ts'
import type { Engine } from '../core/engine.ts'
import { EngineError } from '../core/errors.ts'
import { LOCKS_OPTIONS, type LocksOptions } from '../core/locks-options.ts'
import type { OptionNames } from '../core/options.ts'
import { createLocks, type Locks } from '../locks.ts'

/** Where the locks of an application come from, and how they end. */
export interface OpenOptions extends LocksOptions {
  /** As for `connect()`: that of the environment, or the embedded default, unless given. */
  readonly url?: string
  /** An engine that you have made, instead of a URL: `redis({ client })`. */
  readonly engine?: Engine
  /** Locks that you have made. You close them; the framework only hands them out. */
  readonly locks?: Locks
  /** How long holders have to end by themselves when the application ends: 5 s unless given. */
  readonly grace?: Duration
}

export const OPEN_OPTIONS: OptionNames<OpenOptions> = {
  ...LOCKS_OPTIONS,
  url: true,
  engine: true,
  locks: true,
  grace: true,
}

/** The locks of an application. */
export interface OpenedLocks {
  readonly locks: Locks
  /** Drains and closes what was opened here. */
  end(): Promise<void>
}

/**
 * Throws if more than one place is named, and if the engine can never answer. Options are checked by the caller, who
 * knows what else there is. `warn`: tell the log of the application.
 */
export async function openLocks(options: OpenOptions, warn: (message: string) => void): Promise<OpenedLocks> {
  const { url, engine, locks, grace, ...others } = options
  const given = Object.entries({ url, engine, locks }).filter(([, value]) => value !== undefined)
  if (given.length > 1)
    throw new TypeError(`give one of url, engine and locks; got ${given.map(([name]) => name).join(' and ')}`)
  const draining = grace === undefined ? {} : { grace }
  graceMsOf(draining)
  if (locks !== undefined) {
    if (Object.keys(others).length > 0)
      throw new TypeError(`locks that you have made have their options already; got ${Object.keys(others).join(', ')}`)
    return { locks, end: async () => {} }
  }
  const opened = engine === undefined ? await connect(url, others) : createLocks(engine, others)
  await askOnce(opened, warn)
  return { locks: opened, end: () => opened.drain(draining) }
}

async function askOnce(locks: Locks, warn: (message: string) => void): Promise<void> {
  try {
    await locks.ping()
  } catch (error) {
    if (error instanceof EngineError && error.transient) {
      warn(`the engine of the locks does not answer yet: ${error.message}`)
      return
    }
    await locks.close()
    throw error
  }
}
