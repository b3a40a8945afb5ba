/** What a deliberate defect is: a small change to one file, which a simulator has to catch. */
import type { Conditions } from './conditions.ts'
import type { RedlockConditions } from './redlock/conditions.ts'

export interface Defect {
  readonly name: string
  readonly file: string
  readonly find: string
  readonly replace: string
  readonly why: string
  /** The kind of world in which it shows, where most worlds are too friendly. */
  readonly conditions?: Partial<Conditions> | Partial<RedlockConditions>
  /** Which simulator is to catch it: `main` unless given. */
  readonly simulator?: 'main' | 'redlock/main'
}
