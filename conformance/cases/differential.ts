/** The engine under test and the memory engine give equal answers to the same random calls. */
import type { Group } from '../case.ts'
import { fencing, fifo } from '../needs.ts'
import { Trace } from '../trace.ts'

export const differential: Group = {
  property: 'equal answers',
  atOnce: true,
  cases: [
    {
      name: 'random calls are answered as the memory engine answers them',
      needs: [fifo, fencing],
      limitMs: 60_000,
      async run(scene) {
        for (let round = 0; round < scene.rounds; round += 1) {
          // Each is in lines of its own. All are awaited, also after one has failed: what it would go on with is
          // cleared away then.
          const traces = await Promise.allSettled(
            [0, 1, 2, 3].map((trace) => Trace.run(scene, scene.seed + 4 * round + trace)),
          )
          for (const trace of traces) if (trace.status === 'rejected') throw trace.reason
        }
      },
    },
  ],
}
