/**
 * `holdfast watch KEY`: the line of a key, again whenever it changes. On a terminal in place, else one after the other.
 */
import { systemClock as clock, type Timer } from '../../core/clock.ts'
import type { Line } from '../../core/engine.ts'
import type { CommandSpec } from '../args.ts'
import { EXITS } from '../exits.ts'
import { Interrupted } from '../failure.ts'
import { lineJson, lineText } from '../line-view.ts'
import { open } from '../open.ts'
import { isTerminal, print, printJson, STDOUT, write } from '../output.ts'
import { Signals } from '../signals.ts'

/** Ages and times left go on without anybody telling; hints can be lost. */
const LOOK_EVERY_MS = 1_000
/** Home, and erase what is below after writing. */
const HOME = '\x1b[H\x1b[2J'

export const command: CommandSpec = {
  usage: 'KEY [options]',
  takes: { least: 1, most: 1 },
  runs: false,
  options: { count: { short: 'c', takes: 'N', help: 'end after N changes, the first look included' } },
  examples: [
    ['holdfast watch nightly', 'until Ctrl-C'],
    ['holdfast watch nightly --json', 'one JSON object in a line for every change'],
  ],
  run: async (input) => {
    const { key } = input
    const most = input.wholeNumber('count', 1, Number.MAX_SAFE_INTEGER) ?? Number.POSITIVE_INFINITY
    await using opened = await open(input)
    const bell = new Bell()
    let ended: NodeJS.Signals | undefined
    new Signals((signal) => {
      ended = signal
      bell.ring()
    })
    await using _watching = await opened.ask(
      async ({ engine }) => (await engine.watch?.(key, () => bell.ring())) ?? nothing,
    )
    const redraw = isTerminal(STDOUT) && !input.json
    for (let seen = 0, last = ''; seen < most; await bell.rung(LOOK_EVERY_MS)) {
      // Ctrl-C is how one ends it: no error. Other signals end it as they end others.
      if (ended === 'SIGINT') return EXITS.ok.code
      if (ended !== undefined) throw new Interrupted(ended)
      const line = await opened.ask((locks) => locks.inspect(key))
      const now = identity(line)
      if (now !== last) seen += 1
      if (redraw) write(STDOUT, `${HOME}${lineText(line)}\n`)
      else if (now !== last && input.json) printJson(STDOUT, input.command, lineJson(line))
      else if (now !== last) print(`${lineText(line)}\n`)
      last = now
      if (seen === most) break
    }
    return EXITS.ok.code
  },
}

const nothing: AsyncDisposable = { [Symbol.asyncDispose]: async () => {} }

/** What has to differ for a line to be another one: renewals and ages do not count. */
function identity(line: Line): string {
  return JSON.stringify([line.key, ...line.entries.map(({ id, state }) => [id, state])])
}

/** Sleep until somebody rings, or for a while. A ring while nobody sleeps wakes the next sleeper at once. */
class Bell {
  #rang = false
  #wake: (() => void) | undefined

  ring(): void {
    this.#rang = true
    this.#wake?.()
  }

  async rung(atMostMs: number): Promise<void> {
    if (!this.#rang) {
      const alive = clock.stayAlive()
      let timer: Timer | undefined
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        timer = clock.timer(atMostMs, resolve)
      })
      timer?.cancel()
      alive.cancel()
    }
    this.#rang = false
    this.#wake = undefined
  }
}
