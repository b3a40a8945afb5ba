/**
 * `npm run simulate -- --seeds 1000 [--from 1] [--workers 2] [--stop]`: run that many seeds, and say what happened. A
 * seed that breaks a property is printed with its number and the command that replays it; the exit code is 1 then. It
 * is 1, too, if something worth seeing was never reached in many seeds (coverage.ts).
 *
 * `npm run simulate -- --replay 17`: run one seed, and print its whole event log.
 *
 * `--conditions '{"duplicate":0.5}'`: with any of them, do not draw that part of every world's conditions
 * (simulation/conditions.ts has the names).
 *
 * What a world is made of is in world.ts and conditions.ts; what has to be true of it afterwards is in checks/.
 */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import type { Conditions } from './conditions.ts'
import { runSeed } from './run.ts'
import { type Failure, Summary } from './summary.ts'

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string', default: '1' },
    workers: { type: 'string', default: '1' },
    replay: { type: 'string' },
    stop: { type: 'boolean', default: false },
    conditions: { type: 'string', default: '{}' },
  },
})

const conditions = JSON.parse(values.conditions) as Partial<Conditions>

/** What a worker process tells the one that started it. */
type Message = { readonly failure: Failure } | { readonly summary: Summary }

/** Failures printed in full; beyond, their number is enough. */
const MOST_PRINTED = 20
let printed = 0

function whole(name: 'seeds' | 'from' | 'workers' | 'replay', least: number): number {
  const number = Number(values[name])
  if (Number.isSafeInteger(number) && number >= least) return number
  throw new RangeError(`--${name} must be a whole number, ${least} or more; got ${values[name]}`)
}

function print({ seed, check, text }: Failure): void {
  printed += 1
  if (printed > MOST_PRINTED) return
  const given = values.conditions === '{}' ? '' : ` --conditions '${values.conditions}'`
  console.log(`seed ${seed} breaks "${check}": ${text}\n    npm run simulate -- --replay ${seed}${given}`)
}

async function replay(seed: number): Promise<Summary> {
  const log: string[] = []
  const summary = new Summary()
  summary.add(await runSeed(seed, { log, conditions }))
  for (const line of log) console.log(line)
  for (const failure of summary.failures) print(failure)
  return summary
}

/** Run seeds in this process. `failed` hears of failures as they come. */
async function runHere(from: number, seeds: number, failed: (failure: Failure) => void): Promise<Summary> {
  // Thousands of errors are made and caught; their stacks would cost more than the runs. A replay has them.
  Error.stackTraceLimit = 0
  const summary = new Summary()
  for (let seed = from; seed < from + seeds; seed += 1) {
    const run = await runSeed(seed, { conditions })
    summary.add(run)
    for (const { check, text } of run.violations) failed({ seed, check, text })
    if (values.stop && run.violations.length > 0) break
  }
  return summary
}

/**
 * One process for each piece: what a run leaves behind (Node keeps signals alive that are still listened to, and
 * the dead of a simulation listen for ever) goes with it, and a million seeds need no more memory than one piece.
 */
const PIECE = 25_000

async function runInWorkers(from: number, seeds: number, workers: number): Promise<Summary> {
  const total = new Summary()
  const piece = Math.min(PIECE, Math.ceil(seeds / workers))
  let next = from
  const work = async (): Promise<void> => {
    while (next < from + seeds && !(values.stop && total.failures.length > 0)) {
      const first = next
      next += piece
      total.merge(await runInWorker(first, Math.min(piece, from + seeds - first)))
      if (seeds > PIECE) console.error(`${total.seeds.toLocaleString('en')} seeds`)
    }
  }
  await Promise.all(Array.from({ length: workers }, work))
  return total
}

function runInWorker(from: number, seeds: number): Promise<Summary> {
  return new Promise((resolve, reject) => {
    const options = [
      '--from',
      `${from}`,
      '--seeds',
      `${seeds}`,
      '--conditions',
      values.conditions,
      ...(values.stop ? ['--stop'] : []),
    ]
    const child = fork(fileURLToPath(import.meta.url), options)
    let summary: Summary | undefined
    child.on('message', (message: Message) => {
      if ('failure' in message) print(message.failure)
      else summary = message.summary
    })
    child.on('error', reject)
    child.on('exit', (code) =>
      summary === undefined ? reject(new Error(`a worker ended with code ${code} and no word`)) : resolve(summary),
    )
  })
}

function run(): Promise<Summary> {
  if (values.replay !== undefined) return replay(whole('replay', 0))
  const [from, seeds, workers] = [whole('from', 0), whole('seeds', 1), whole('workers', 1)]
  return workers > 1 || seeds > PIECE ? runInWorkers(from, seeds, workers) : runHere(from, seeds, tell)
}

/** As a worker: to the process that started us. */
function tell(failure: Failure): void {
  if (process.send === undefined) print(failure)
  else process.send({ failure } satisfies Message)
}

const startedAt = performance.now()
const summary = await run()
if (process.send !== undefined) process.send({ summary } satisfies Message)
else for (const line of summary.toLines((performance.now() - startedAt) / 1000)) console.log(line)
// Given conditions may leave something out on purpose.
const unreached = process.send === undefined && values.conditions === '{}' ? summary.unreached() : []
if (unreached.length > 0) console.log(`never reached, so nothing is known about it: ${unreached.join(', ')}`)
process.exitCode = summary.failures.length > 0 || unreached.length > 0 ? 1 : 0
// The channel to the process that started us would keep this one alive.
if (process.connected) process.disconnect()
