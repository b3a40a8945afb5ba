/**
 * The conformance suite: is an engine what it says it is?
 *
 *     import { afterAll, describe, it } from 'vitest'
 *     import { conformance } from 'holdfast/conformance'
 *     conformance({ describe, it, afterAll }, 'mine', () => ({ engine: () => mine() }))
 *
 * Nothing here imports a test runner. `runCases` runs the same cases without one and returns the results.
 */
export { type Fault, type FaultyEngine, type FaultyVerb, faulty, type PlannedFault } from './faulty.ts'
export { type ConformanceOptions, conformance, type Outcome, type Result, runCases, type TestRunner } from './run.ts'
export type { Ability, ActorModule, EngineModule, World } from './world.ts'
