/**
 * The checks that every run has to pass. Each is a small function of the history that yields a sentence for whatever is
 * wrong; none of them knows the core.
 */
import { drain } from './checks/drain.ts'
import { expiry } from './checks/expiry.ts'
import { liveness } from './checks/liveness.ts'
import { maxHold } from './checks/max-hold.ts'
import { needlessness } from './checks/needless.ts'
import { order } from './checks/order.ts'
import { protocol } from './checks/protocol.ts'
import { refusal } from './checks/refusal.ts'
import { registers } from './checks/registers.ts'
import { safety } from './checks/safety.ts'
import type { History } from './history.ts'

export type Check = (history: History) => Iterable<string>

export interface Violation {
  /** The property, by its name. */
  readonly check: string
  readonly text: string
}

export const CHECKS: Readonly<Record<string, Check>> = {
  ...safety,
  ...registers,
  ...order,
  ...protocol,
  ...liveness,
  ...expiry,
  ...maxHold,
  ...drain,
  ...needlessness,
  ...refusal,
}

/** Everything that is wrong with this run: of each property, the first breach. */
export function checkHistory(history: History): readonly Violation[] {
  const violations: Violation[] = []
  for (const [check, breaches] of Object.entries(CHECKS)) {
    for (const text of breaches(history)) {
      violations.push({ check, text })
      break
    }
  }
  const told = new Set<string>()
  for (const { kind, at, text } of history.mishaps) {
    if (!told.has(kind)) violations.push({ check: kind, text: `at ${at.toFixed(3)}: ${text}` })
    told.add(kind)
  }
  return violations
}
