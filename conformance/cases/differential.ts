/** The engine under test and the memory engine give equal answers to the same random calls. */
import type { Group } from '../case.ts'
import { fencing, fifo } from '../needs.ts'
import { Trace } from '../trace.ts'

export const differential: Group = {
  property: 'equal answers',
  cases: [
    {
      name: 'random calls are answered as the memory engine answers them',
      needs: [fifo, fencing],
      limitMs: 60_000,
      async run(scene) {
        for (let trace = 0; trace < 4 * scene.rounds; trace += 1) await Trace.run(scene, scene.seed + trace)
      },
    },
  ],
}
