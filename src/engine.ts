/**
 * For authors of engines: the contract, and what an engine is made of. `holdfast/conformance` checks it, and
 * docs/writing-an-engine.md tells how to begin.
 */
export type { Chance, Clock, Timer } from './core/clock.ts'
export { channels, type Publish, publish } from './core/diagnostics.ts'
export {
  type Claim,
  type Engine,
  type EntryName,
  type Finding,
  type GoneReason,
  type Line,
  type LineEntry,
  type LineSummary,
  type News,
  type Place,
  type Standing,
  type Traits,
  UNLIMITED,
} from './core/engine.ts'
export { type CallOutcome, EngineError, type ErrorCode, HoldfastError, LineFullError } from './core/errors.ts'
export type { Rate, RateState } from './core/rate.ts'
export {
  type Change,
  type Entered,
  type Entrance,
  type Got,
  HIGHEST_MARK,
  type Leaving,
  type Put,
  type ServerTimeMs,
  type Store,
  type Stored,
  type StoredSummary,
  type StoreFailure,
  type StoreTraits,
  TOMBSTONE_MS,
  VALUE_LIMIT_BYTES,
  type When,
} from './core/store.ts'
export type { HoldVerb, PoolAnswer, PoolItemView, PoolLine, PoolStep } from './core/store-hold.ts'
export type { Draw, Drawn, DrawPart } from './core/store-take.ts'
