/**
 * `npm run simulate:redlock -- --grants 1000000 [--seeds 1000] [--from 1] [--stop] [--conditions '{"wild":true}']`: run
 * seeds until so many locks were granted, or so many seeds were run, and say what happened. A seed that breaks a
 * property is printed with its number; the exit code is 1 then.
 *
 * What runs is src/engines/redlock/quorum.ts itself, on simulated servers (server.ts) and links (link.ts).
 */
import { parseArgs } from 'node:util'
import type { RedlockConditions } from './conditions.ts'
import { runSeed } from './world.ts'

const { values } = parseArgs({
  options: {
    grants: { type: 'string' },
    seeds: { type: 'string' },
    from: { type: 'string', default: '1' },
    stop: { type: 'boolean', default: false },
    conditions: { type: 'string', default: '{}' },
  },
})

const MOST_PRINTED = 20
const conditions = JSON.parse(values.conditions) as Partial<RedlockConditions>
const mostGrants = Number(values.grants ?? (values.seeds === undefined ? 100_000 : Number.POSITIVE_INFINITY))
const mostSeeds = Number(values.seeds ?? Number.POSITIVE_INFINITY)
const startedAt = performance.now()
let [seeds, grants, broken] = [0, 0, 0]
for (let seed = Number(values.from); seeds < mostSeeds && grants < mostGrants; seed += 1) {
  const run = runSeed(seed, conditions)
  seeds += 1
  grants += run.grants
  for (const { check, text } of run.violations) {
    broken += 1
    if (broken <= MOST_PRINTED) console.log(`seed ${seed} breaks "${check}": ${text}`)
  }
  if (values.stop && broken > 0) break
}
const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
console.log(
  `${grants} grants in ${seeds} seeds, ${seconds} s: ${broken === 0 ? 'no token twice, none went back' : `${broken} violations`}`,
)
process.exitCode = broken > 0 ? 1 : 0
