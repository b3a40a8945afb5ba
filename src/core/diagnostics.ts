/**
 * What happens, for whoever listens: one `diagnostics_channel` for each kind of event. Free when nobody does.
 *
 * Subscribe with `diagnostics_channel.subscribe('holdfast:lost', (message) =>
 * ...)`. OpenTelemetry and loggers are such subscribers. `operation ` is one object for the whole life of an acquire,
 * from `ask` to `release`: a subscriber may keep things about it in a WeakMap.
 */
import { type Channel, channel } from 'node:diagnostics_channel'
import type { EngineError, LossReason } from './errors.ts'

/** One acquire, from asking to releasing. */
export interface Operation {
  readonly engine: string
  readonly key: string
  readonly weight: number
  readonly limit: number
}

export interface Events {
  /** Somebody asks for a lock. Published in the caller's own async context. */
  ask: { operation: Operation }
  /** It got it. `queued`: it had to stand in line, so somebody handed over. */
  grant: { operation: Operation; token: bigint | null; waitedMs: number; queued: boolean }
  /** It did not get it. */
  refuse: { operation: Operation; waitedMs: number; why: 'busy' | 'timeout' | 'cancelled' | 'error'; error?: unknown }
  /** It gave it back, or noticed at the end that it was lost. */
  release: { operation: Operation; heldMs: number; lost: LossReason | undefined }
  /** A beat was answered. `marginMs`: how much time the most pressed of the renewed leases had left. */
  renew: { engine: string; count: number; marginMs: number }
  /** Two thirds of a lease have gone by without a renewal. */
  jeopardy: { operation: Operation; token: bigint | null; remainingMs: number; error: EngineError | undefined }
  lost: { operation: Operation; token: bigint | null; why: LossReason }
  /** A call for this key failed. With `error.outcome` unknown, nobody can tell yet whether it was applied. */
  failed: { engine: string; verb: 'enter' | 'renew' | 'leave'; key: string; error: EngineError }
  /** An enter of unknown outcome was cleaned up; `wasThere`: it had been applied. */
  resolved: { engine: string; key: string; wasThere: boolean }
  /** Two keys were taken in opposite orders (`checkOrder`). */
  order: { first: string; second: string; message: string }
}

export type EventName = keyof Events

const EVENTS: readonly EventName[] = [
  'ask',
  'grant',
  'refuse',
  'release',
  'renew',
  'jeopardy',
  'lost',
  'failed',
  'resolved',
  'order',
]

/** The channels, by event: `channels.lost` is `holdfast:lost`. */
export const channels: { readonly [Name in EventName]: Channel } = Object.fromEntries(
  EVENTS.map((name) => [name, channel(`holdfast:${name}`)]),
) as { [Name in EventName]: Channel }

/**
 * `publish.lost({...})`. A subscriber that throws is reported by Node as an uncaught exception; it never disturbs a
 * lock.
 */
export type Publish = { readonly [Name in EventName]: (message: Events[Name]) => void }

/** Tells the channels. */
export const publish: Publish = Object.fromEntries(
  EVENTS.map((name) => [name, (message: unknown) => channels[name].publish(message)]),
) as unknown as Publish
