/** A batch whose calls the test answers, and what the batch tells. */

import { Batch, type BatchSpec, type Sent } from '../../src/core/batch.ts'
import { KeepAlive } from '../../src/core/keep-alive.ts'
import { type CountingClock, countingClock, settled } from './world.ts'

export interface Item {
  readonly key: string
  readonly wanted?: boolean
}

export interface Call {
  readonly keys: readonly string[]
  readonly signal: AbortSignal | undefined
  answer(...answers: readonly string[]): Promise<void>
  fail(error: unknown): Promise<void>
}

export interface World {
  readonly clock: CountingClock
  readonly batch: Batch<Item, string>
  readonly calls: readonly Call[]
  /** `a: yes`, `b failed: ...` in the order in which the batch tells. */
  readonly told: readonly string[]
  readonly sent: readonly Sent[]
  ask(...keys: readonly string[]): void
}

export const TIMEOUT = 1000

export function batchWorld(overrides: Partial<BatchSpec<Item, string>> = {}): World {
  const clock = countingClock()
  const calls: Call[] = []
  const told: string[] = []
  const sends: Sent[] = []
  let sequence = 0
  const spec: BatchSpec<Item, string> = {
    engine: 'scripted',
    verb: 'enter',
    batchLimit: 100,
    splitFrom: Number.POSITIVE_INFINITY,
    takesSignal: () => true,
    call: (items, signal) =>
      new Promise((resolve, reject) => {
        calls.push({
          keys: items.map(({ key }) => key),
          signal: signal as AbortSignal,
          answer: (...answers) => {
            resolve(answers)
            return settled()
          },
          fail: (error) => {
            reject(error)
            return settled()
          },
        })
      }),
    timeoutMs: () => TIMEOUT,
    sending: (item, sent) => {
      sends.push(sent)
      return item.wanted ?? true
    },
    answered: ({ key }, answer) => told.push(`${key}: ${answer}`),
    failed: ({ key }, { outcome }) => told.push(`${key} failed: ${outcome}`),
    abandoned: ({ key }) => told.push(`${key} abandoned`),
    ...overrides,
  }
  const batch = new Batch(spec, clock, new KeepAlive(clock), () => {
    sequence += 1
    return sequence
  })
  const ask = (...keys: readonly string[]): void => {
    for (const key of keys) batch.add({ key })
  }
  return { clock, batch, calls, told, sent: sends, ask }
}

/** The keys of each call so far. */
export const keysOf = ({ calls }: World): readonly string[] => calls.map(({ keys }) => keys.join(' '))
