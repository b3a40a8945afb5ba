/**
 * What happens, for programs that listen: one `diagnostics_channel` for each kind of event. It costs nothing while no
 * program does.
 *
 * Subscribe with `channels.loss.subscribe((message) => ...)`, or, without types, with
 * `diagnostics_channel.subscribe('holdfast:loss', (message) => ...)`. OpenTelemetry and loggers are such subscribers.
 * `operation` is one object for the whole life of an acquire, from `request` to `release`, and to what is cleaned up
 * after it: a subscriber may keep things about it in a WeakMap. Events of several acquires, or of none, have `engine`
 * instead. What is optional is absent where there is none.
 */
import { type Channel, channel } from 'node:diagnostics_channel'
import type { EngineError, LossReason } from './errors.ts'
import type { Sample } from './line-view.ts'

/** One acquire, from the request to the release. */
export interface Operation {
  readonly engine: string
  readonly key: string
  readonly weight: number
  readonly limit: number
}

/** The message of each event. All names are nouns; `loss` is published on the channel `holdfast:loss`. */
export interface Events {
  /** A caller asks for a lock. Published in the caller's own async context. */
  request: { operation: Operation }
  /** The caller got it. `queued`: it had to stand in line, so a holder before it handed the lock on. */
  grant: { operation: Operation; token: bigint | null; waitedMs: number; queued: boolean }
  /** The caller did not get it. */
  refusal: { operation: Operation; waitedMs: number; why: 'busy' | 'timeout' | 'cancelled' | 'error'; error?: unknown }
  /** The holder gave it back, or noticed at the end that it was lost: then `why`. */
  release: { operation: Operation; heldMs: number; why?: LossReason }
  /** A batch of renewals was answered. `marginMs`: how much time the most pressed of the renewed leases had left. */
  renewal: { engine: string; count: number; marginMs: number }
  /** Two thirds of a lease have gone by without a renewal. */
  jeopardy: { operation: Operation; token: bigint | null; remainingMs: number; error?: EngineError }
  /** A lease ended before its release. */
  loss: { operation: Operation; token: bigint | null; why: LossReason }
  /**
   * A call for this acquire failed. With `error.outcome` unknown, it may have been applied. `held`: the caller has held
   * it; else it waits, or has given up. May come after the release.
   */
  failure: { operation: Operation; verb: 'enter' | 'renew' | 'leave'; held: boolean; error: EngineError }
  /**
   * An enter of unknown outcome was cleaned up, after its refusal; `wasThere`: it had been applied. Told once, and once
   * more if the enter arrives after that. Where a later enter was granted, only such an arrival is told.
   */
  cleanup: { operation: Operation; wasThere: boolean }
  /** Two keys were taken in opposite orders (`checkOrder`). */
  inversion: { first: string; second: string; message: string }
  /**
   * An engine has found something about its server that could break its promises. `name` is that of the finding in
   * `holdfast doctor`. An engine may look for it only while the channel has subscribers. With an `operation`, it is
   * about that acquire: `long-hold` or `long-wait` (`warnAfter`), or `unreachable`: while it waits, the engine has not
   * answered for a second or more. That is told once in an outage, for all that wait.
   */
  warning: { engine: string; name: string; message: string; operation?: Operation }
  /**
   * `locks.sample` has looked at lines, or tried to. `sampler` is one object from the first sample to the last, which
   * has no lines and says that it is `over`.
   */
  sample: Sample & { sampler: object; engine: string; tookMs: number; error?: unknown; over?: true }
}

/** What can happen: `'grant'`, `'loss'` and so on. */
export type EventName = keyof Events

/** The message of each channel, by the name of the channel: `ChannelMessages['holdfast:loss']`. */
export type ChannelMessages = { readonly [Name in EventName as `holdfast:${Name}`]: Events[Name] }

/** A channel of `diagnostics_channel` whose messages have a type. */
export interface EventChannel<Message> {
  /** As `diagnostics_channel.subscribe` takes it. */
  readonly name: string | symbol
  /** Whether any program listens. */
  readonly hasSubscribers: boolean
  /** Have each message from now on. */
  subscribe(listener: (message: Message, name: string | symbol) => void): void
  /** Have no more of them. False if that listener was not subscribed. */
  unsubscribe(listener: (message: Message, name: string | symbol) => void): boolean
}

const EVENTS: readonly EventName[] = [
  'request',
  'grant',
  'refusal',
  'release',
  'renewal',
  'jeopardy',
  'loss',
  'failure',
  'cleanup',
  'inversion',
  'warning',
  'sample',
]

const nodeChannels = Object.fromEntries(EVENTS.map((name) => [name, channel(`holdfast:${name}`)])) as {
  readonly [Name in EventName]: Channel
}

/** The channels, by event: `channels.loss` is `holdfast:loss`, and its messages are `Events['loss']`. */
export const channels: { readonly [Name in EventName]: EventChannel<Events[Name]> } = nodeChannels as unknown as {
  readonly [Name in EventName]: EventChannel<Events[Name]>
}

/**
 * `publish.loss({...})`. A subscriber that throws is reported by Node as an uncaught exception; it never disturbs a
 * lock.
 */
export type Publish = { readonly [Name in EventName]: (message: Events[Name]) => void }

/** Publishes on the channels. */
export const publish: Publish = Object.fromEntries(
  EVENTS.map((name) => [name, (message: unknown) => nodeChannels[name].publish(message)]),
) as unknown as Publish
