/**
 * What a waiter sees: who holds, since when, how many are ahead. One line on a terminal, drawn again when
 * something changes and gone when the lock is ours. Elsewhere nothing, or with -v a line for each new holder.
 */
import { systemClock as clock } from '../core/clock.ts'
import { formatDuration } from '../core/duration.ts'
import type { Line, LineEntry } from '../core/engine.ts'
import { onAbort } from '../core/on-abort.ts'
import { fallbackAfter } from '../core/time-limit.ts'
import type { Locks } from '../locks.ts'
import { parseHolder } from './line-view.ts'
import { colours, isTerminal, printable, STDERR, say, write } from './output.ts'

/** A waiter that gets the lock sooner sees nothing flicker. */
const QUIET_FOR_MS = 250
const REDRAW_MS = 1_000
const ERASE = '\r\x1b[K'
const NARROW = 80
/** How long a refusal may take to learn who holds the lock: it is only for the message. */
const NAMING_MS = 500

export class WaitDisplay {
  readonly #locks: Locks
  readonly #key: string
  readonly #drawn: boolean
  readonly #ending = new AbortController()
  readonly #shown: Promise<void>
  #last = ''

  /** Undefined if stderr is no terminal and -v was not given. */
  static begin(locks: Locks, key: string, options: { quiet: boolean; verbose: boolean }): WaitDisplay | undefined {
    const drawn = isTerminal(STDERR) && process.env.TERM !== 'dumb'
    if (options.quiet || !(drawn || options.verbose)) return undefined
    return new WaitDisplay(locks, key, drawn)
  }

  private constructor(locks: Locks, key: string, drawn: boolean) {
    this.#locks = locks
    this.#key = key
    this.#drawn = drawn
    this.#shown = this.#watch(this.#ending.signal)
  }

  async end(): Promise<void> {
    this.#ending.abort()
    if (this.#drawn && this.#last !== '') write(STDERR, ERASE)
    await this.#shown
  }

  async #watch(signal: AbortSignal): Promise<void> {
    await pause(QUIET_FOR_MS, signal)
    while (!signal.aborted) {
      try {
        for await (const line of this.#locks.watch(this.#key, { every: REDRAW_MS, signal })) {
          if (!signal.aborted) this.#show(describeWait(line, this.#locks.holder))
        }
      } catch {
        // The wait itself tells of an engine that fails; this only shows, and goes on when the engine answers again.
        await pause(REDRAW_MS, signal)
      }
    }
  }

  #show({ who, since, ahead }: WaitSummary): void {
    if (this.#drawn) {
      const { dim, bold } = colours(STDERR)
      const rest = [since === '' ? '' : ` for ${since}`, ahead < 2 ? '' : `, ${ahead} ahead`].join('')
      const columns = process.stderr.columns || NARROW
      const room = columns - 1 - 'waiting for : held by '.length - this.#key.length - rest.length
      this.#last = `waiting for ${this.#key}: held by ${who}`
      write(
        STDERR,
        `${ERASE}${dim('waiting for')} ${bold(printable(this.#key))}${dim(': held by')} ${shorten(who, room)}${dim(rest)}`,
      )
    } else if (who !== this.#last) {
      this.#last = who
      say(`waiting for '${printable(this.#key)}': held by ${who}${ahead < 2 ? '' : `, ${ahead} ahead`}`)
    }
  }
}

/** Resolves after `ms`, or when `signal` aborts. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
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
export function describeWait(line: Line, ownHolder: string): WaitSummary {
  const held = line.entries.filter(({ state }) => state === 'held')
  const place = line.entries.findIndex(({ holder }) => holder === ownHolder)
  const first = held[0]
  const more = held.length > 1 ? ` and ${held.length - 1} more` : ''
  return {
    who: first === undefined ? 'nobody' : `${who(first.holder)}${more}`,
    since: sinceInWords(first),
    ahead: place < 0 ? line.entries.length : place,
  }
}

function sinceInWords(holder: LineEntry | undefined): string {
  const ms = holder?.heldMs ?? holder?.ageMs ?? null
  return ms === null ? '' : formatDuration(ms)
}

/** `: held by host pid 4711 (./backup.sh) for 3s`; nothing if that cannot be said any more. */
export async function holderInWords(locks: Locks, key: string): Promise<string> {
  const line = await fallbackAfter(clock, NAMING_MS, locks.inspect(key), undefined)
  if (line === undefined || !line.entries.some(({ state }) => state === 'held')) return ''
  const { who: holder, since } = describeWait(line, locks.holder)
  return `: held by ${holder}${since === '' ? '' : ` for ${since}`}`
}

/** `host pid 4711 (./backup.sh)`; a holder in words of its own as it is. */
function who(holder: string): string {
  const { host, pid, command } = parseHolder(holder)
  return printable(host === null ? holder : `${host} pid ${pid}${command === null ? '' : ` (${command})`}`)
}

function shorten(text: string, room: number): string {
  const characters = Array.from(new Intl.Segmenter().segment(text), ({ segment }) => segment)
  return characters.length <= room ? text : `${characters.slice(0, Math.max(room - 1, 0)).join('')}…`
}
