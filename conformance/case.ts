/**
 * A case: one sentence a user would care about, what it needs, and how it is shown. Cases are data; run.ts runs them,
 * under any test runner or none.
 */
import type { Need } from './needs.ts'
import type { Scene } from './scene.ts'

export interface Case {
  /** The sentence. */
  readonly name: string
  /** What the engine or the world must offer for the sentence to mean anything. */
  readonly needs?: readonly Need[]
  /** How long it may take before it counts as failed; 20 s unless given. */
  readonly limitMs?: number
  /** Show it, or throw. */
  run(scene: Scene): Promise<void>
}

/** The cases of one property. */
export interface Group {
  readonly property: string
  /**
   * Its cases mostly wait, and disturb no other case: they are played beside each other, and beside those of other such
   * groups.
   */
  readonly atOnce?: boolean
  readonly cases: readonly Case[]
}
