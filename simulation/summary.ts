/** What many runs amount to. Plain enough to be sent from one process to another. */
import { Coverage } from './coverage.ts'
import type { FaultKind } from './history.ts'
import type { Run } from './run.ts'

/** A seed that broke a property. */
export interface Failure {
  readonly seed: number
  readonly check: string
  readonly text: string
}

/** With so many seeds, everything that `Coverage` counts has happened often. */
const ENOUGH_SEEDS = 10_000

export class Summary {
  seeds = 0
  events = 0
  /** The fewest events of any seed. */
  fewestEvents: number = Number.MAX_SAFE_INTEGER
  readonly coverage: Coverage = new Coverage()
  readonly faults: Partial<Record<FaultKind, number>> = {}
  readonly failures: Failure[] = []

  add({ seed, events, history, coverage, violations }: Run): void {
    this.seeds += 1
    this.events += events
    this.fewestEvents = Math.min(this.fewestEvents, events)
    this.coverage.add(coverage)
    for (const { kind } of history.faults) this.faults[kind] = (this.faults[kind] ?? 0) + 1
    for (const { check, text } of violations) this.failures.push({ seed, check, text })
  }

  /** Add what another process found. */
  merge(other: Summary): void {
    this.seeds += other.seeds
    this.events += other.events
    this.fewestEvents = Math.min(this.fewestEvents, other.fewestEvents)
    this.coverage.add(other.coverage)
    for (const [kind, count] of Object.entries(other.faults))
      this.faults[kind as FaultKind] = (this.faults[kind as FaultKind] ?? 0) + count
    this.failures.push(...other.failures)
  }

  /** What never happened, in so many seeds that it should have; empty where fewer were run. */
  unreached(): readonly string[] {
    if (this.seeds < ENOUGH_SEEDS) return []
    return Object.entries(this.coverage).flatMap(([name, times]) => (times === 0 ? [name] : []))
  }

  /** A few lines for people. */
  toLines(seconds: number): readonly string[] {
    const losses = Object.entries(this.coverage).reduce((sum, [of, n]) => (of.endsWith('Losses') ? sum + n : sum), 0)
    const failed = new Set(this.failures.map(({ seed }) => seed)).size
    return [
      `${count(this.seeds)} seeds, ${count(this.events)} events (${count(this.fewestEvents)} or more each), ${count(this.coverage.grants)} grants, ${count(losses)} losses`,
      `faults: ${listed(this.faults)}`,
      `reached: ${listed(Object.fromEntries(Object.entries(this.coverage)))}`,
      `${count(Math.round(this.seeds / seconds))} seeds/s, ${seconds.toFixed(1)} s, ${failed === 0 ? 'no violations' : `${count(failed)} seeds with violations`}`,
    ]
  }
}

function count(number: number): string {
  return number.toLocaleString('en-US')
}

function listed(counts: Readonly<Partial<Record<string, number>>>): string {
  const entries = Object.entries(counts).sort(([a], [b]) => a.localeCompare(b))
  return entries.map(([name, number = 0]) => `${name} ${count(number)}`).join(', ')
}
