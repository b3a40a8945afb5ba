/**
 * The conformance suite has teeth: engines that break one promise each fail the cases that are about it. And it is
 * honest: what does not apply is not called passed.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { groups } from '../../conformance/cases/index.ts'
import { delegate } from '../../conformance/delegate.ts'
import { conformance, type Result, runCases, type World } from '../../conformance/index.ts'
import type { Engine } from '../../src/core/engine.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import type { Defect } from './broken/defect.ts'
import { drawDefects } from './broken/draws.ts'
import { expiryDefects } from './broken/expiries.ts'
import { lineDefects } from './broken/lines.ts'
import { lifeDefects } from './broken/lives.ts'
import { poolDefects } from './broken/pools.ts'
import { recordDefects } from './broken/records.ts'
import { strangers } from './broken/strangers.ts'
import { wordDefects } from './broken/words.ts'

const defects: readonly Defect[] = [
  ...lineDefects,
  ...lifeDefects,
  ...expiryDefects,
  ...wordDefects,
  ...recordDefects,
  ...drawDefects,
  ...poolDefects,
  strangers,
]
const names: readonly string[] = groups.flatMap(({ cases }) => cases.map(({ name }) => name))
const LAST = 'no rejection went unhandled, in any process, in all of this'

/**
 * What no broken engine can show, because the core keeps these promises, whatever the engine does. Its rules have tests
 * of their own.
 */
const ABOUT_THE_CORE: readonly string[] = [
  'a grant that is announced before the enter is answered is not lost',
  'an answer "waiting" from before the grant does not take the lease away',
  'a waiter that has lost its place comes back, at the back of the line',
  'a signal that is aborted already: nothing is asked, and the reason is the caller\u2019s own',
  'an enter whose reply was lost (not applied) and that is given up is cleaned up',
  'a renewal whose reply was lost is tried again, and the lease goes on',
  'a change whose reply was lost (applied) is asked again, and its caller is told that it was made',
  'a change whose reply was lost (not applied) is asked again, and its caller is told that it was made',
  'a client that is cut off is told of its loss by the signal, and by signals made from it, without looking',
  'after a stall the very first look tells the truth: held, remaining time, signal, assertion',
  'work that stalled for longer than its ttl is told so, even if it succeeded',
  'after its own stall a client goes on: what it held is lost, what it asks for anew is had',
  'what a listener asks for, when it hears of the closing, is refused: the next client holds alone',
  'closing refuses those who wait, and ends those who watch and observe',
  'after the closing whatever is asked for is refused, in words that say so',
  'past its maxHold, work that never ends keeps the next one out for a ttl, and no longer',
]

/** What needs several processes or a server that restarts: more than an engine in this one can break. */
const ABOUT_PROCESSES = /kill|restart|processes|^a (?:process|holder that is (?:cut|stopped)) /

const memoryWorld = (): World => {
  const server = new MemoryServer()
  return { engine: () => memory({ server }) }
}

/** The outcome of one case in one world. */
async function outcomeOf(world: () => World, wanted: string, limitMs?: number): Promise<Result> {
  const [result] = await runCases(world, {
    only: (name) => name === wanted,
    ...(limitMs === undefined ? {} : { limit: limitMs }),
  })
  return result ?? expect.fail(`no case is called '${wanted}'`)
}

describe('an engine that', () => {
  test.concurrent.each(defects)('$name is found out', async ({ fails, world, because = /./, limitMs = 2_000 }) => {
    const find = async (name: string): Promise<void> => {
      const result = await outcomeOf(world, name, limitMs)
      expect({ name, outcome: result.outcome }).toEqual({ name, outcome: 'failed' })
      if (result.outcome === 'failed') expect(result.error.message).toMatch(because)
    }
    // Most cases fail by waiting for their limit, so they wait side by side. Those that start processes need the
    // processor, and those that set the clock of this process have only one.
    const inTurn = fails.filter((name) => ABOUT_PROCESSES.test(name) || name.startsWith('a wall clock that jumps'))
    await Promise.all(fails.filter((name) => !inTurn.includes(name)).map(find))
    for (const name of inTurn) await find(name)
  })
})

test('every case can fail: some broken engine shows it, or it is not about engines', () => {
  // What is shown for a mutex is shown for everything that must behave like one.
  const sentence = (name: string): string =>
    name.replace(/^(?:mutex|semaphore of 1|semaphore of 5 with four drained|write lock|all of one): /, '')
  const shown = new Set(defects.flatMap(({ fails }) => fails.map(sentence)))
  const others = names.map(sentence).filter((name) => !shown.has(name) && !ABOUT_PROCESSES.test(name))
  expect(new Set(others)).toEqual(new Set([...ABOUT_THE_CORE, LAST]))
})

test('an engine that is late once, as on a busy machine, fails no case for it; one that is wrong in time does', async () => {
  const world = (standing: object) => (): World => {
    let calls = 0
    const engine = memory()
    const renew: Engine['renew'] = async (places) => {
      calls += 1
      // Longer than the entry lives.
      if (calls === 1) await sleep(1_000)
      const standings = await engine.renew(places)
      return standings.map((one) => (one.state === 'held' ? { ...one, ...standing } : one))
    }
    return { engine: () => delegate(engine, { renew }) }
  }
  const wanted = 'a renewal sets the expiry anew, to the ttl that it names'
  expect(await outcomeOf(world({}), wanted)).toMatchObject({ outcome: 'passed' })
  expect(await outcomeOf(world({ heldForMs: 1 }), wanted)).toMatchObject({
    outcome: 'failed',
    error: { message: expect.stringContaining('held for 1 ms after a renewal') },
  })
})

test('a rejection that is not handled fails the case', async () => {
  const listeners = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection')
  const careless = (): World => {
    const { engine } = memoryWorld()
    return {
      engine: async () => {
        void Promise.reject(new Error('forgotten'))
        return engine()
      },
    }
  }
  try {
    const result = await outcomeOf(careless, 'a try that is refused leaves no trace')
    expect(result).toMatchObject({
      outcome: 'failed',
      error: { message: expect.stringMatching(/unhandled.*forgotten/s) },
    })
  } finally {
    for (const listener of listeners) process.on('unhandledRejection', listener)
  }
})

test('what the engine or the world lacks is not applicable, with the reason', async () => {
  const poor = (): World => {
    const engine = memory()
    const traits = { ...engine.traits, sharing: 'none', order: 'none', fencing: false } as const
    return { engine: () => delegate(engine, { traits }), lacks: { actor: 'it is a hermit' } }
  }
  const wanted = [
    'readers hold together, a writer alone',
    'a process that holds is killed: the next one holds, and nothing of the dead one remains',
  ]
  const results = await runCases(poor, { only: (name) => wanted.includes(name) || name.startsWith('after a restart') })
  expect(results).toMatchObject([
    { property: 'sharing', outcome: 'not applicable', reason: 'it has no shared locks' },
    { property: 'death and absence', outcome: 'not applicable', reason: 'it is a hermit' },
    { property: 'restart of the server', outcome: 'not applicable', reason: 'it has no fencing tokens' },
    { property: 'restart of the server', outcome: 'not applicable', reason: 'it has no fencing tokens' },
  ])
})

/** A test runner that remembers what it was told. */
class Runner {
  readonly seen: string[] = []
  readonly tests: (() => Promise<void>)[] = []
  readonly closing: (() => Promise<void>)[] = []

  readonly describe = (_name: string, body: () => void): void => body()
  readonly afterAll = (close: () => Promise<void>): void => void this.closing.push(close)
  readonly it = (
    name: string,
    _options: object,
    run: (context: { skip(reason?: string): void }) => Promise<void>,
  ): void => {
    this.tests.push(async () => {
      let how = 'passed'
      const skip = (reason?: string): void => {
        how = `skipped, ${reason}`
      }
      await run({ skip }).catch((error: Error) => {
        how = error.message
      })
      this.seen.push(`${name}: ${how}`)
    })
  }
}

test('a test runner sees passed, skipped with the reason, and failed', async () => {
  const runner = new Runner()
  const stores = 'the server stores nothing for lines without entries'
  let closed = 0
  const world = (): World => ({
    ...memoryWorld(),
    close() {
      closed += 1
    },
  })
  conformance(runner, 'memory', world, { only: (name) => [LAST, stores].includes(name) })
  conformance(runner, 'nothing', () => Promise.reject(new Error('no world')), { only: (name) => name === LAST })
  for (const run of [...runner.tests, ...runner.closing]) await run()
  expect(runner.seen).toEqual([
    `${stores}: skipped, this world does not show what its server stores`,
    `${LAST}: passed`,
    `${LAST}: no world`,
  ])
  expect(closed).toBe(1)
})

describe('a runner that asks for one case', () => {
  /** How many clients were asked for after the first of them had been run. */
  async function begun(wanted: readonly string[]): Promise<number> {
    const { engine } = memoryWorld()
    let asked = 0
    const counting = (): World => ({
      engine() {
        asked += 1
        return engine()
      },
    })
    const runner = new Runner()
    conformance(runner, 'memory', counting, { only: (name) => wanted.includes(name) })
    expect(runner.tests.length).toBe(wanted.length)
    await runner.tests[0]?.()
    const before = asked
    for (const run of [...runner.tests.slice(1), ...runner.closing]) await run()
    expect(runner.seen.filter((line) => line.endsWith(': passed')).length).toBe(wanted.length)
    return asked - before
  }

  test('has others that mostly wait begun with it', async () => {
    const names = groups
      .filter(({ property }) => property === 'trying')
      .flatMap(({ cases }) => cases.map(({ name }) => name))
    expect(await begun(names.slice(0, 2))).toBe(0)
  })

  test('has those that are played alone wait for their turn', async () => {
    const names = groups
      .filter(({ property }) => property === 'order')
      .flatMap(({ cases }) => cases.map(({ name }) => name))
    expect(await begun(names.slice(0, 2))).toBeGreaterThan(0)
  })

  test('and asks again, because it failed, has it played again', async () => {
    const { engine } = memoryWorld()
    let asked = 0
    const lateStarter = (): World => ({
      engine() {
        asked += 1
        // The first is the sample whose traits are looked at.
        if (asked === 2) throw new Error('not yet')
        return engine()
      },
    })
    const runner = new Runner()
    conformance(runner, 'memory', lateStarter, { only: (name) => name === 'a try that is refused leaves no trace' })
    for (const run of [...runner.tests, ...runner.tests, ...runner.closing]) await run()
    expect(runner.seen.map((line) => line.split(': ')[1])).toEqual(['not yet', 'passed'])
  })
})

test('a case that takes too long fails', async () => {
  const frozen = (): World => {
    const engine = memory()
    return { engine: () => delegate(engine, { enter: () => new Promise(() => {}) }) }
  }
  const result = await outcomeOf(frozen, 'a try that is refused leaves no trace', 50)
  expect(result).toMatchObject({ outcome: 'failed', error: { message: 'not done after 50 ms' } })
})
