/**
 * What a test and an actor say to each other over the channel that Node opens between a process and its child: one
 * question, one answer, by number. Structured clone carries bigints. Times are nanoseconds of the host's monotonic
 * clock, which all processes of one host share.
 */
import type { LockSpec } from '../locks-by-spec.ts'
import type { EngineModule } from '../world.ts'

/**
 * A lease, as its holder saw it. `atNs` was read before the rest, so whatever it says was still said at that time or
 * later.
 */
export interface Look {
  readonly atNs: bigint
  readonly held: boolean
  readonly aborted: boolean
  readonly token: bigint | null
}

/**
 * One turn of the holder's event loop. `looked` is undefined for an actor that only listens: then `told` says whether
 * the abort event has come by itself.
 */
export interface Turn {
  readonly atNs: bigint
  readonly looked: { readonly held: boolean; readonly aborted: boolean } | undefined
  readonly told: boolean
}

/** What an actor does when asked. Leases are named by the asker. */
export interface Commands {
  open(args: { engine: EngineModule; ttlMs: number; holder: string }): void
  acquire(args: { lease: string; lock: LockSpec; waitMs?: number }): Look
  tryAcquire(args: { lease: string; lock: LockSpec }): Look | undefined
  /** Cancel the waiting. */
  cancel(args: { lease: string }): void
  release(args: { lease: string; afterMs?: number }): boolean
  look(args: { lease: string }): Look
  /** Write down every turn of the event loop from now on. `looking`: ask the lease at each turn; else only listen. */
  attend(args: { lease: string; looking: boolean }): void
  turns(args: { lease: string }): readonly Turn[]
  /** Block the event loop, and look at the lease before anything else can run. */
  stall(args: { lease: string; ms: number }): Look
  /**
   * Read, wait a turn, write: add 1 to our own entry in a file of numbers, `times` times, each under the lock. Answers
   * how often the lease was lost.
   */
  count(args: { lock: LockSpec; file: string; name: string; times: number }): number
  /** Campaign, and lead until ended. Resolves when it leads. */
  lead(args: { lease: string; key: string; ttlMs: number }): Look
  /** Move what this process takes for wall time. */
  jump(args: { ms: number }): void
  /** Nothing passes between the engine object of this process and the core any more. */
  cut(args: object): void
  heal(args: object): void
  close(args: object): void
}

export type CommandName = keyof Commands
export type Arguments<Name extends CommandName> = Parameters<Commands[Name]>[0]
export type Answer<Name extends CommandName> = ReturnType<Commands[Name]>

export interface Question {
  readonly number: number
  readonly name: CommandName
  readonly args: unknown
}

export type FromActor =
  | { readonly type: 'answer'; readonly number: number; readonly value: unknown }
  | { readonly type: 'refusal'; readonly number: number; readonly name: string; readonly message: string }
  /** Something was rejected or thrown, and not caught. */
  | { readonly type: 'unhandled'; readonly message: string }
