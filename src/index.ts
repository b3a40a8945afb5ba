/** What users import: `holdfast`. Authors of engines import `holdfast/engine`. */
export { connect } from './connect.ts'
export type { Chance, Clock, Timer } from './core/clock.ts'
export {
  type ChannelMessages,
  channels,
  type EventChannel,
  type EventName,
  type Events,
  type Operation,
} from './core/diagnostics.ts'
export type { DrainOptions } from './core/drain.ts'
export type { Duration } from './core/duration.ts'
export type { Line, LineEntry, LineSummary } from './core/engine.ts'
export {
  AcquireTimeoutError,
  type CallOutcome,
  ClosedError,
  ConflictError,
  DeadlockError,
  EngineError,
  type ErrorCode,
  HoldfastError,
  LeaseLostError,
  LineFullError,
  type LossReason,
  StaleTokenError,
  UnsupportedError,
} from './core/errors.ts'
export type { Lease, ReleaseOptions } from './core/lease.ts'
export type { LineSample, Sample } from './core/line-view.ts'
export type { AcquireOptions, LineAcquireOptions, Lock, WeightedAcquireOptions, Work } from './core/lock.ts'
export type { LockOptions, LocksOptions, ReentrantLockOptions, WatchOptions } from './core/locks-options.ts'
export type { Logger } from './core/logging.ts'
export type { OrderReport } from './core/order.ts'
export type { SampleOptions } from './core/sample.ts'
export type { WarnAfter } from './core/warn-after.ts'
export { createLocks, type Locks, type ReadWriteLock, type Semaphore } from './locks.ts'
export type { AllLease } from './primitives/all.ts'
export type { Election, Leader, LeadOptions, ObserveOptions } from './primitives/election.ts'
