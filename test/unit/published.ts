/** What the core publishes on `diagnostics_channel` while a test looks. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { EventName, Events } from '../../src/core/diagnostics.ts'

export interface Published {
  readonly name: EventName
  readonly message: Events[EventName]
}

export interface Listening extends Disposable {
  readonly all: readonly Published[]
  readonly names: readonly EventName[]
  /** The messages of one event. */
  of<Name extends EventName>(name: Name): readonly Events[Name][]
}

/** Listen until disposed: `using events = published('loss')`. */
export function published(...names: readonly EventName[]): Listening {
  const all: Published[] = []
  const listeners = names.map((name) => {
    const listener = (message: unknown): void => {
      all.push({ name, message: message as Events[EventName] })
    }
    subscribe(`holdfast:${name}`, listener)
    return () => unsubscribe(`holdfast:${name}`, listener)
  })
  return {
    all,
    get names() {
      return all.map(({ name }) => name)
    },
    of: <Name extends EventName>(wanted: Name) =>
      all.filter(({ name }) => name === wanted).map(({ message }) => message as Events[Name]),
    [Symbol.dispose]() {
      for (const stop of listeners) stop()
    },
  }
}
