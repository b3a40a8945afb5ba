/**
 * One seed, from its first event to the last check.
 *
 *     storm ───────────────► calm ─────────────► quiet ──────────► closed
 *     faults, and workers    no faults; what is  one ttl and more: every process
 *     that ask for locks     asked is granted    nothing may be    closes
 *                            or given up         left anywhere
 */

import { channels, type Operation } from '../src/core/diagnostics.ts'
import { context } from '../src/core/nesting.ts'
import { recoveryMs } from './checks/liveness.ts'
import { checkHistory, type Violation } from './checks.ts'
import type { Coverage } from './coverage.ts'
import type { History } from './history.ts'
import { LONGEST_KEPT_TTLS } from './holder.ts'
import { closeProcess, GREATEST_JUMP_TTLS, scheduleTimedFaults, startProcess } from './timed-faults.ts'
import { World, type WorldOptions } from './world.ts'

export interface Run {
  readonly seed: number
  readonly events: number
  readonly history: History
  readonly coverage: Coverage
  readonly violations: readonly Violation[]
}

/** How many events the storm has. Those of the calm come on top. */
const STORM_EVENTS = 300

/** Rejections that are not handled belong to the seed that is running: one runs at a time. */
let running: World | undefined
process.on('unhandledRejection', (reason) => {
  const text = reason instanceof Error ? (reason.stack ?? reason.message) : String(reason)
  if (running === undefined) throw reason
  running.mishap('unhandled rejection', text)
})

/** What was released is not lost after that: listeners hear of the one or of the other. */
const released = new WeakSet<Operation>()
channels.release.subscribe(({ operation }) => released.add(operation))
channels.loss.subscribe(({ operation, why }) => {
  if (released.has(operation))
    running?.mishap('lease after its end', `the lease of '${operation.key}' was lost after its release (${why})`)
})

export async function runSeed(seed: number, options: WorldOptions = {}): Promise<Run> {
  const world = new World(seed, options)
  const { scheduler, history, conditions } = world
  running = world
  if (!conditions.contexts) context.disable()
  for (let number = 0; number < conditions.processes; number += 1) startProcess(world)
  scheduleTimedFaults(world, STORM_EVENTS)
  scheduler.afterEvents(STORM_EVENTS, () => endStorm(world))
  const ended = await scheduler.run()
  if (!ended) world.mishap('runaway', `${scheduler.count} events and no end`)
  for (const process of world.processes) {
    if (process.alive && !process.closed) world.mishap('slow close', `${process.name} never was closed`)
  }
  running = undefined
  history.endedAt = world.now
  return { seed, events: scheduler.count, history, coverage: world.coverage, violations: checkHistory(history) }
}

function endStorm(world: World): void {
  const { scheduler, history } = world
  world.calm = true
  // What has struck already takes its time.
  history.calmAt = history.faults.reduce((latest, { to }) => Math.max(latest, to), world.now)
  if (world.logging) world.log('world', 'calm')
  for (const happen of world.atCalm) happen()
  let done = false
  world.whenAllAreDone = () => {
    if (done) return
    done = true
    scheduler.after(Math.max(0, history.calmAt - world.now) + quietMs(world), 'world', undefined, () => endQuiet(world))
  }
  // A worker that is not done by then never will be: the check of recovery says which.
  scheduler.after(history.calmAt - world.now + recoveryMs(history) * 2, 'world', undefined, () => {
    if (!done) scheduler.stop()
  })
  world.workersDone()
}

/**
 * Whatever is not renewed has expired by then, and whatever is swept has been swept. A server whose clock was set back
 * makes everything live longer.
 */
function quietMs({ conditions, history }: World): number {
  const jumps = history.faults.filter(({ kind }) => kind === 'server clock jump').length
  return (
    2.5 * conditions.longTtlMs +
    LONGEST_KEPT_TTLS * conditions.ttlMs +
    2 * conditions.callTimeoutMs +
    jumps * GREATEST_JUMP_TTLS * conditions.ttlMs
  )
}

function endQuiet(world: World): void {
  const { server, processes, witness } = world
  if (world.logging) world.log('world', 'quiet')
  witness.looksAround()
  if (server.lines.size > 0) world.mishap('left behind', `${server.lines.size} lines on the server`)
  const living = processes.filter(({ alive, ending }) => alive && !ending)
  for (const process of living) world.mustBeIdle(process, 'when everything was given back long ago')
  for (const process of living) closeProcess(world, process, () => {})
}
