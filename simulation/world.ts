/**
 * One run's world: its time, its chance, its server and processes, and the record of what happens. Everything else in
 * this folder is given one of these.
 */

import { type Conditions, drawConditions } from './conditions.ts'
import { Coverage } from './coverage.ts'
import { type Fault, type FaultKind, History, type MishapKind } from './history.ts'
import type { SimulatedProcess } from './process.ts'
import { Random } from './random.ts'
import { BareRegister, Register } from './register.ts'
import { Scheduler } from './scheduler.ts'
import { SimulatedServer } from './server.ts'
import { Witness } from './witness.ts'

export interface WorldOptions {
  /** Where to write the event log, line by line. */
  readonly log?: string[]
  /** What is not left to chance. */
  readonly conditions?: Partial<Conditions>
}

export class World {
  readonly seed: number
  readonly random: Random
  readonly conditions: Conditions
  readonly scheduler: Scheduler = new Scheduler()
  readonly coverage: Coverage = new Coverage()
  readonly history: History
  readonly server: SimulatedServer
  readonly witness: Witness
  readonly keys: readonly string[]
  readonly guarded: ReadonlyMap<string, Register>
  readonly plain: ReadonlyMap<string, Register>
  readonly bare: ReadonlyMap<string, BareRegister>
  /** Every process there ever was; its number is its place. */
  readonly processes: SimulatedProcess[] = []
  /** The storm is over: no faults, nothing new is asked. */
  calm = false
  /** What to do when it becomes so. */
  readonly atCalm: (() => void)[] = []
  whenAllAreDone: (() => void) | undefined
  readonly #log: string[] | undefined

  constructor(seed: number, { log, conditions = {} }: WorldOptions) {
    this.seed = seed
    this.#log = log
    this.random = new Random(seed)
    this.conditions = drawConditions(this.random, conditions)
    const { delayMs, longTtlMs, callTimeoutMs, news } = this.conditions
    this.history = new History({ delayMs, ttlMs: longTtlMs, callTimeoutMs, news })
    this.keys = ['a', 'b', 'c', 'd', 'e', 'f'].slice(0, this.conditions.keys)
    this.server = new SimulatedServer(this)
    this.witness = new Witness(this)
    this.guarded = new Map(this.keys.map((key) => [key, new Register(this.history, key, true)]))
    this.plain = new Map(this.keys.map((key) => [key, new Register(this.history, key, false)]))
    this.bare = new Map(this.keys.map((key) => [key, new BareRegister()]))
  }

  get now(): number {
    return this.scheduler.now
  }

  /** Whether the log is wanted: building its lines costs more than the rest of the run. */
  get logging(): boolean {
    return this.#log !== undefined
  }

  log(who: string, what: string): void {
    this.#log?.push(`${this.now.toFixed(3).padStart(12)}  ${who.padEnd(7)} ${what}`)
  }

  mishap(kind: MishapKind, text: string): void {
    this.history.mishaps.push({ at: this.now, kind, text })
    if (this.logging) this.log('world', `MISHAP ${kind}: ${text}`)
  }

  /** Nothing of the core may be left in `process`. */
  mustBeIdle({ name, timers, awake }: SimulatedProcess, when: string): void {
    if (timers > 0) this.mishap('left behind', `${name} has ${timers} timers ${when}`)
    if (awake > 0) this.mishap('left behind', `${name} is kept alive by ${awake} things ${when}`)
  }

  /**
   * A worker of `process` has nothing more to do, or its locks are closed. When both is true, nothing may be left of
   * it.
   */
  workerDone(process: SimulatedProcess): void {
    if (process.closed && process.working === 0) this.mustBeIdle(process, 'although it is closed')
    this.workersDone()
  }

  /** When all workers have nothing more to do, `whenAllAreDone` is called. */
  workersDone(): void {
    if (this.calm && this.processes.every(({ working }) => working === 0)) this.whenAllAreDone?.()
  }

  /** Note a fault that lasts so long. `process` undefined: it concerns all processes. */
  fault(kind: FaultKind, process?: number, durationMs = 0): void {
    const fault: Fault = { kind, process, from: this.now, to: this.now + durationMs }
    this.history.faults.push(fault)
    if (this.logging)
      this.log(
        process === undefined ? 'world' : `p${process}`,
        `${kind}${durationMs > 0 ? ` for ${durationMs.toFixed(1)} ms` : ''}`,
      )
  }
}
