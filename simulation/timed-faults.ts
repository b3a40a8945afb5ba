/**
 * Faults that happen at a moment, as opposed to those of single messages (link.ts): processes are stopped, suspended,
 * killed and closed, links go dark, clocks are set, the server freezes, restarts and forgets. They are spread over the
 * events of the storm, not over its time: so they happen where something is going on.
 */
import { LAST_MOMENT_MS } from '../src/core/keeper.ts'
import type { ResumeOrder } from './actor.ts'
import type { TimedFault } from './conditions.ts'
import type { History } from './history.ts'
import { startObserver } from './observer.ts'
import { SimulatedProcess } from './process.ts'
import { Random } from './random.ts'
import { startWorkers } from './worker.ts'
import type { World } from './world.ts'

/** The shortest sleep of a machine. Below, the core's clock does not promise to notice (see src/core/clock.ts). */
const SHORTEST_SUSPENSION_MS = 1000

export function scheduleTimedFaults(world: World, events: number): void {
  const { conditions, random, scheduler } = world
  for (const fault of conditions.timedFaults)
    scheduler.afterEvents(random.whole(0, events), () => EFFECTS[fault](world))
}

/** A new process, at work. */
export function startProcess(world: World): void {
  const process = new SimulatedProcess(world)
  startWorkers(world, process)
  if (world.conditions.observers && !world.calm) startObserver(world, process)
}

/** No run has as many. */
const MOST_PROCESSES = 1000

/** How far the server's clock is set, at most. */
export const GREATEST_JUMP_TTLS = 2

const EFFECTS: Readonly<Record<TimedFault, (world: World) => void>> = {
  blackout: (world) =>
    onSomeProcess(world, (process) => {
      const durationMs = lasting(world, 2)
      world.fault('blackout', process.number, durationMs)
      process.link.blackOut(durationMs)
    }),

  pause: (world) =>
    onSomeProcess(world, (process) => {
      const durationMs = lasting(world, 3)
      world.fault('pause', process.number, durationMs)
      process.stop(durationMs, resumeOrder(world))
    }),

  suspension: (world) =>
    onSomeProcess(world, (process) => {
      const durationMs = Math.max(SHORTEST_SUSPENSION_MS, lasting(world, 3))
      world.fault('suspension', process.number, durationMs)
      process.suspend(durationMs, resumeOrder(world))
      // Machines that wake up ask the time, and set their wall clock.
      if (world.random.happens(0.3)) setWallClock(world, process)
    }),

  crash: (world) =>
    onSomeProcess(world, (process) => {
      world.fault('crash', process.number)
      process.crash()
      buried(world, process)
      world.scheduler.after(lasting(world, 1), 'world', undefined, () => startProcess(world))
    }),

  close: (world) => onSomeProcess(world, (process) => closeProcess(world, process, () => startProcess(world))),

  'wall clock jump': (world) => onSomeProcess(world, (process) => setWallClock(world, process)),

  'server freeze': (world) => {
    const durationMs = lasting(world, 1.5)
    world.fault('server freeze', undefined, durationMs)
    world.server.stop(durationMs, resumeOrder(world))
  },

  'server restart': (world) => restartServer(world, 'kept'),

  'server amnesia': (world) => restartServer(world, 'lost'),

  'server clock jump': (world) => {
    world.fault('server clock jump')
    world.witness.jumps()
    world.server.jump(world.random.between(-GREATEST_JUMP_TTLS, GREATEST_JUMP_TTLS) * world.conditions.ttlMs)
  },

  eviction: (world) => {
    const key = world.random.pick(world.keys)
    const how = world.random.pick(['expire', 'now'] as const)
    world.server.schedule(0, 'io', () => evictSomeEntry(world, key, how))
  },
}

function evictSomeEntry(world: World, key: string, how: 'expire' | 'now'): void {
  const { random, server, witness } = world
  if (server.down) return
  // Whatever has expired lets others hold first: what is evicted then may have been holding for no time at all, but it
  // was.
  server.lines.inspect(key)
  witness.looksAround()
  const stays = witness.stays(key)
  if (stays.length === 0) return
  const { token, process } = random.pick(stays)
  world.fault('eviction', process, world.conditions.longTtlMs)
  if (!server.lines.evict(key, token, how)) return
  if (world.logging) world.log('server', `${key}: token ${token} is evicted (${how})`)
  witness.condemns(key, token)
  witness.looks([{ key }], undefined, token)
}

/** Ask a process to end well: everything given back, nothing left running. */
export function closeProcess(world: World, process: SimulatedProcess, then: () => void): void {
  const { history } = world
  process.ending = true
  // A chance of its own, so that the rest of a seed is drawn as it would be without it.
  const chance = new Random(world.seed * MOST_PROCESSES + process.number)
  const graceMs = chance.happens(world.conditions.drains) ? chance.between(0, world.conditions.ttlMs) : undefined
  process.draining = graceMs !== undefined
  process.schedule(0, 'work', () => {
    const startedAt = world.now
    world.fault('close', process.number)
    if (graceMs !== undefined) {
      history.drains.push({ process: process.number, at: startedAt, graceMs })
      if (history.holdings.some((holding) => holding.process === process.number && holding.endedAt === undefined))
        world.coverage.drains += 1
    }
    const closed = graceMs === undefined ? process.locks.close() : process.locks.drain({ grace: graceMs })
    void closed.then(() => {
      if (world.logging) world.log(process.name, 'is closed')
      process.draining = false
      const from = graceMs === undefined ? startedAt : idleSince(history, process.number, startedAt, graceMs)
      // Work that was told at the end of the grace has a moment to stop.
      const momentMs = graceMs !== undefined && from - startedAt >= graceMs ? LAST_MOMENT_MS : 0
      // No longer than the core's own deadline for a call, and what four timers may be late.
      const boundMs = momentMs + 1.01 * world.conditions.callTimeoutMs + 4
      if (world.now - from > boundMs && !history.stopped(process.number, startedAt, world.now)) {
        world.mishap('slow close', `${process.name} took ${(world.now - from).toFixed(1)} ms to close`)
      }
      process.closed = true
      world.workerDone(process)
      then()
    })
  })
}

/**
 * From when on a drain has nothing to wait for: nothing is held any more, or the grace is over. An attempt for several
 * keys holds some of them until it has ended.
 */
function idleSince({ holdings, attempts }: History, process: number, at: number, graceMs: number): number {
  let since = at
  for (const holding of holdings)
    if (holding.process === process) since = Math.max(since, holding.endedAt ?? Number.POSITIVE_INFINITY)
  for (const attempt of attempts)
    if (attempt.process === process && attempt.keys.length > 1)
      since = Math.max(since, attempt.settledAt ?? Number.POSITIVE_INFINITY)
  return Math.min(since, at + 1.01 * graceMs)
}

function restartServer(world: World, memory: 'kept' | 'lost'): void {
  const durationMs = lasting(world, 1)
  world.fault(memory === 'kept' ? 'server restart' : 'server amnesia', undefined, durationMs)
  for (const process of world.processes) process.link.news.interrupt(durationMs)
  world.server.restart(durationMs, memory)
}

function setWallClock(world: World, process: SimulatedProcess): void {
  world.fault('wall clock jump', process.number)
  process.setWallClock(world.random.pick([-1, 1]) * world.random.pick([300, 5_000, 3_600_000]))
}

/** What the dead process believed ends with it, and no worker waits for what it asked. */
function buried(world: World, process: SimulatedProcess): void {
  for (const holding of world.history.holdings) if (holding.process === process.number) holding.endedAt ??= world.now
  process.working = 0
  world.workerDone(process)
}

function onSomeProcess(world: World, apply: (process: SimulatedProcess) => void): void {
  const living = world.processes.filter(({ alive, ending }) => alive && !ending)
  if (living.length > 0) apply(world.random.pick(living))
}

/** Up to `ttls` of the ttl. */
function lasting({ conditions, random }: World, ttls: number): number {
  return random.between(0, ttls * conditions.ttlMs)
}

function resumeOrder(world: World): ResumeOrder {
  return world.random.pick(world.conditions.resumeOrders)
}
