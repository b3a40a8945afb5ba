/**
 * The conformance of one engine without a test runner, so that it is played by whatever runtime runs this file:
 *
 *     node dist/test/matrix/play.js engine redis         the engine, with the client that its URL makes
 *     bun dist/test/matrix/play.js client ioredis        what a client can get wrong, with a client that is brought
 *     node dist/test/matrix/play.js engine sqlite 'waiting|crash'    some properties only
 *
 * Prints one line of JSON for each case as it ends, so that one which ends the process has its name in the output, and
 * before them what this is, as runtime and server say it themselves. A case that fails is played again, alone, and once
 * more: one that passes then is unsteady.
 */
import { conformance, type World } from '../../conformance/index.ts'
import { monotonicNs } from '../../src/clients/sqlite/monotonic.ts'
import { createLocks } from '../../src/locks.ts'
import { CLIENTS, ENGINES, type PlayedEngine } from './engines.ts'
import type { Line } from './lines.ts'

interface RegisteredTest {
  readonly name: string
  run(context: { skip(reason?: string): void }): Promise<void>
}

const MOST_REPEATS = 2

const [kind, name = '', properties] = process.argv.slice(2)
const played = (kind === 'client' ? CLIENTS : ENGINES)[name]
if (played === undefined) throw new Error(`there is no ${kind} '${name}'`)
await play(played)
// What a client has left open is of no concern here.
process.exit(0)

async function play({ world: makeWorld, options = {} }: PlayedEngine): Promise<void> {
  const world = await makeWorld()
  const server = await aboutServer(world)
  tell({ type: 'about', runtime: runtime(), server, clockNs: String(monotonicNs()) })
  const tests: RegisteredTest[] = []
  const closing: (() => Promise<void>)[] = []
  let group = ''
  const chosen = properties === undefined ? /./ : new RegExp(properties)
  conformance(
    {
      describe: (title, body) => {
        group = title
        body()
      },
      it: (title, _, run) => tests.push({ name: `${group}: ${title}`, run }),
      afterAll: (close) => closing.push(close),
    },
    name,
    () => world,
    { ...options, only: (title, property) => chosen.test(property) && options.only?.(title, property) !== false },
  )
  for (const test of tests) await playOne(test)
  for (const close of closing) await close()
}

async function playOne(test: RegisteredTest): Promise<void> {
  const startedAt = performance.now()
  const first = await outcomeOf(test)
  let last = first
  for (let again = 0; again < MOST_REPEATS && last.outcome === 'failed'; again += 1) last = await outcomeOf(test)
  const said = last.outcome === 'passed' && last !== first ? { outcome: 'unsteady' as const, why: first.why } : last
  tell({ type: 'case', name: test.name, seconds: (performance.now() - startedAt) / 1000, ...said })
}

interface Outcome {
  readonly outcome: 'passed' | 'failed' | 'not applicable'
  readonly why?: string | undefined
}

async function outcomeOf({ run }: RegisteredTest): Promise<Outcome> {
  let reason: string | undefined
  try {
    await run({
      skip: (given = 'no reason given') => {
        reason = given
      },
    })
    return reason === undefined ? { outcome: 'passed' } : { outcome: 'not applicable', why: reason }
  } catch (error) {
    return { outcome: 'failed', why: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}

function tell(line: Line): void {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

function runtime(): string {
  const { bun, deno, node } = process.versions
  if (bun !== undefined) return `Bun ${bun}`
  return deno === undefined ? `Node ${node}` : `Deno ${deno}`
}

/** Which server it is, as `holdfast doctor` finds it. As there, a lock is held before. */
async function aboutServer(world: World): Promise<string | undefined> {
  const engine = await world.engine()
  const locks = createLocks(engine)
  await locks.mutex('first').using(() => undefined)
  const findings = (await engine.diagnose?.()) ?? []
  await locks.close()
  return findings.find(({ name }) => name === 'version')?.finding
}
