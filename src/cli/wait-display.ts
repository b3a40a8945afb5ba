/**
 * What a waiter sees: who holds, since when, how many are ahead, or that the server does not answer. One line on a
 * terminal, drawn again when something changes and gone when the lock is ours. Elsewhere one line after a few seconds,
 * so that a log tells why nothing happens; with -v one at once, and one for each new holder.
 */
import { systemClock as clock } from '../core/clock.ts'
import { channels, type Events } from '../core/diagnostics.ts'
import { formatDuration } from '../core/duration.ts'
import type { Line } from '../core/engine.ts'
import { EngineError } from '../core/errors.ts'
import { withoutEngine } from '../core/failed-call.ts'
import { holderInWords, holdInWords } from '../core/holder.ts'
import { onAbort } from '../core/on-abort.ts'
import { thrownText } from '../core/thrown.ts'
import { fallbackAfter } from '../core/time-limit.ts'
import type { Locks } from '../locks.ts'
import { colours, isTerminal, printable, STDERR, say, write } from './output.ts'

/** A waiter that gets the lock sooner sees nothing flicker. */
const QUIET_FOR_MS = 250
/** And one that is neither on a terminal nor told to be verbose is silent for so long. */
const SILENT_FOR_MS = 3_000
const REDRAW_MS = 1_000
const ERASE = '\r\x1b[K'
const NARROW = 80
/** How long a sentence may take to learn who holds the lock. */
const NAMING_MS = 500

/** `drawn`: one line, again and again. `told`: a line for each holder. `once`: one line, after a while. */
type Manner = 'drawn' | 'told' | 'once'

export class WaitDisplay {
  readonly #locks: Locks
  readonly #key: string
  readonly #manner: Manner
  readonly #ending = new AbortController()
  readonly #shown: Promise<void>
  #last = ''

  /** Undefined with -q, and where the result is JSON. */
  static begin(locks: Locks, key: string, options: { quiet: boolean; verbose: boolean }): WaitDisplay | undefined {
    if (options.quiet) return undefined
    const drawn = isTerminal(STDERR) && process.env.TERM !== 'dumb'
    return new WaitDisplay(locks, key, drawn ? 'drawn' : options.verbose ? 'told' : 'once')
  }

  private constructor(locks: Locks, key: string, manner: Manner) {
    this.#locks = locks
    this.#key = key
    this.#manner = manner
    const { signal } = this.#ending
    if (manner !== 'drawn') channels.warning.subscribe(this.#warned)
    this.#shown = manner === 'once' ? this.#tellOnce(signal) : this.#watch(signal)
  }

  async end(): Promise<void> {
    this.#ending.abort()
    channels.warning.unsubscribe(this.#warned)
    if (this.#manner === 'drawn' && this.#last !== '') write(STDERR, ERASE)
    await this.#shown
  }

  /** One look, however long it waits: a hundred cron jobs that wait are no load. */
  async #tellOnce(signal: AbortSignal): Promise<void> {
    await pause(SILENT_FOR_MS, signal)
    if (signal.aborted) return
    const held = await heldInWords(this.#locks, this.#key)
    if (!signal.aborted) say(`waiting for '${printable(this.#key)}'${held}`)
  }

  async #watch(signal: AbortSignal): Promise<void> {
    await pause(QUIET_FOR_MS, signal)
    while (!signal.aborted) {
      try {
        for await (const line of this.#locks.watch(this.#key, { every: REDRAW_MS, signal })) {
          if (!signal.aborted) this.#show(describeWait(line, this.#locks.holder))
        }
      } catch (error) {
        // The wait itself tells of an engine that fails for good; this only shows, and goes on when it answers again.
        if (!signal.aborted && this.#manner === 'drawn') this.#draw(': the server does not answer:', why(error), '')
        await pause(REDRAW_MS, signal)
      }
    }
  }

  /** The core tells of an outage, once. On a terminal the line itself does. */
  readonly #warned = ({ name, message }: Events['warning']): void => {
    if (name === 'unreachable') say(printable(message))
  }

  #show({ who, since, ahead }: WaitSummary): void {
    const behind = ahead < 2 ? '' : `, ${ahead} ahead`
    if (this.#manner === 'drawn') {
      this.#draw(': held by', who, `${since === '' ? '' : ` for ${since}`}${behind}`)
    } else if (who !== this.#last) {
      this.#last = who
      say(`waiting for '${printable(this.#key)}': held by ${who}${since === '' ? '' : ` for ${since}`}${behind}`)
    }
  }

  /** `what` is cut where the terminal is too narrow. */
  #draw(verb: string, what: string, rest: string): void {
    const { dim, bold } = colours(STDERR)
    const columns = process.stderr.columns || NARROW
    const room = columns - 1 - 'waiting for '.length - verb.length - 1 - this.#key.length - rest.length
    this.#last = `${verb}${what}`
    write(
      STDERR,
      `${ERASE}${dim('waiting for')} ${bold(printable(this.#key))}${dim(verb)} ${shorten(what, room)}${dim(rest)}`,
    )
  }
}

/** What the engine said, in one line. */
function why(error: unknown): string {
  return printable(error instanceof EngineError ? withoutEngine(error) : thrownText(error))
}

/** Resolves after `ms`, or when `signal` aborts. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.timer(ms, resolve)
    onAbort(signal, () => {
      timer.cancel()
      resolve()
    })
  })
}

export interface WaitSummary {
  readonly who: string
  readonly since: string
  readonly ahead: number
}

/** The line as a waiter sees it. */
function describeWait(line: Line, ownHolder: string): WaitSummary {
  const held = line.entries.filter(({ state }) => state === 'held')
  const place = line.entries.findIndex(({ holder }) => holder === ownHolder)
  const first = held[0]
  const more = held.length > 1 ? ` and ${held.length - 1} more` : ''
  const ms = first?.heldMs ?? first?.ageMs ?? null
  return {
    who: first === undefined ? 'nobody' : `${printable(holderInWords(first.holder))}${more}`,
    since: ms === null ? '' : formatDuration(ms),
    ahead: place < 0 ? line.entries.length : place,
  }
}

/** `: held by host pid 4711 (./backup.sh) for 3s`; nothing if that cannot be said any more. */
export async function heldInWords(locks: Locks, key: string): Promise<string> {
  const line = await fallbackAfter(clock, NAMING_MS, locks.inspect(key), undefined)
  const [first, ...others] = line?.entries.filter(({ state }) => state === 'held') ?? []
  if (first === undefined) return ''
  return `: held by ${printable(holdInWords(first))}${others.length === 0 ? '' : ` and ${others.length} more`}`
}

function shorten(text: string, room: number): string {
  const characters = Array.from(new Intl.Segmenter().segment(text), ({ segment }) => segment)
  return characters.length <= room ? text : `${characters.slice(0, Math.max(room - 1, 0)).join('')}…`
}
