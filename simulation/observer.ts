/**
 * An observer, which watches an election: it sees leader after leader, and never an earlier one again, whatever happens
 * to the watching.
 */
import type { SimulatedProcess } from './process.ts'
import type { World } from './world.ts'

export function startObserver(world: World, process: SimulatedProcess): void {
  process.working += 1
  const controller = new AbortController()
  world.atCalm.push(() => process.schedule(0, 'work', () => controller.abort()))
  void observe(world, process, controller.signal)
}

async function observe(world: World, process: SimulatedProcess, signal: AbortSignal): Promise<void> {
  const election = process.locks.election(world.random.pick(world.keys))
  let last = -1n
  while (!signal.aborted && !process.ending) {
    try {
      for await (const leader of election.observe({ signal })) {
        world.coverage.leadersSeen += 1
        const token = leader?.token ?? last
        if (token < last)
          world.mishap('leaders out of order', `${process.name} saw leader ${token} of '${election.key}' after ${last}`)
        last = token
      }
    } catch {
      // It could not look for a while, and looks again.
      await process.sleep(world.conditions.ttlMs / 3)
    }
  }
  process.working -= 1
  world.workerDone(process)
}
