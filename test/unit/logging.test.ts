/** A logger that the user hands in: it is told what happens, and can break nothing. */
import { describe, expect, test } from 'vitest'
import { publish } from '../../src/core/diagnostics.ts'
import type { Logger } from '../../src/core/logging.ts'
import { held, unreachable, waiting } from './scripted-engine.ts'
import { BEAT, inMemory, scripted, settled, TTL, watched } from './world.ts'

function recorder(): Logger & { readonly lines: string[] } {
  const lines: string[] = []
  const write = (level: string) => (fields: object, message: string) => {
    JSON.stringify(fields)
    lines.push(`${level}: ${message}`)
  }
  return { lines, debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
}

const broken: Logger = {
  debug: () => fail(),
  info: () => fail(),
  warn: () => fail(),
  error: () => fail(),
}
function fail(): never {
  throw new Error('the disk is full')
}

describe('a logger', () => {
  test('hears what goes right as debug, and ordinary contention is never a warning', async () => {
    const logger = recorder()
    const { locks } = inMemory({ logger })
    const lease = await locks.mutex('a').acquire()
    await locks.mutex('a').tryAcquire()
    await lease.release()
    expect(logger.lines).toEqual(["debug: acquired 'a'", "debug: did not acquire 'a'", "debug: released 'a'"])
  })

  test('hears of renewals, whether or not there are other listeners', async () => {
    const logger = recorder()
    const { clock, locks } = inMemory({ logger })
    await locks.mutex('a').acquire()
    await clock.advance(BEAT)
    expect(logger.lines).toContain('debug: renewed')
  })

  test('hears of jeopardy, loss and failures as warnings and errors', async () => {
    const logger = recorder()
    const { engine, clock, locks } = scripted({ logger })
    watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    await (await engine.next('renew')).fail(unreachable())
    await clock.advance(TTL)
    expect(logger.lines).toContain("warn: renewing 'a' failed")
    expect(logger.lines).toContain("warn: 'a' was not renewed for two thirds of its time")
    expect(logger.lines).toContain("error: lost 'a'")
  })
})

test('of a caller that waits, an outage is one warning and its end: it renews nothing, and leaves in silence', async () => {
  const logger = recorder()
  const { engine, clock, locks } = scripted({ logger })
  const asked = watched(locks.mutex('a').acquire())
  await (await engine.next('enter')).answer(waiting(1))
  while (asked.state === 'pending') {
    await clock.advance(1000)
    if ((await engine.unseen()).includes('renew a')) await (await engine.next('renew')).fail(unreachable())
  }
  await (await engine.next('leave')).fail(unreachable())
  const loud = logger.lines.filter((line) => !line.startsWith('debug'))
  expect(loud).toEqual([
    expect.stringMatching(/^warn: 'a' is waited for, and scripted has not answered for .*: cannot be reached$/),
    "error: could not acquire 'a'",
  ])
  expect(logger.lines).toContain("debug: asking for the place of 'a' in line failed")
  expect(logger.lines.at(-1)).toBe("debug: leaving the line of 'a' failed")
})

test('an outage is one line without a stack for each renewal that fails', async () => {
  const told: object[] = []
  const note = (fields: object): void => void told.push(fields)
  const { engine, clock, locks } = scripted({
    logger: { debug: () => {}, info: () => {}, warn: note, error: () => {} },
  })
  watched(locks.mutex('a').acquire())
  await (await engine.next('enter')).answer(held(1n))
  await clock.advance(BEAT)
  await (await engine.next('renew')).fail(unreachable())
  await clock.advance(BEAT)
  expect(told.length).toBeGreaterThan(1)
  for (const fields of told) {
    expect(fields).toHaveProperty('error', expect.stringMatching(/^scripted: /))
    expect(Object.values(fields).filter((value) => value instanceof Error)).toEqual([])
  }
})

describe('a warning of an engine', () => {
  const warn = (): void => publish.warning({ engine: 'redis', name: 'eviction', message: 'keys are evicted' })

  test('is told once to a logger that several locks share, until the last of them is closed', async () => {
    const logger = recorder()
    const [one, other] = [inMemory({ logger }), inMemory({ logger })]
    warn()
    await one.locks.close()
    warn()
    await other.locks.close()
    warn()
    expect(logger.lines).toEqual(['warn: keys are evicted', 'warn: keys are evicted'])
  })

  test('is not told to a logger of locks that were refused', () => {
    const logger = recorder()
    expect(() => inMemory({ logger, signals: 'yes' as never })).toThrow('signals must be')
    expect(() => inMemory({ logger, signals: { grace: 'soon' } as never })).toThrow('grace')
    warn()
    expect(logger.lines).toEqual([])
  })
})

describe('a logger that throws', () => {
  test('does not disturb the engine that warns', async () => {
    const { locks } = inMemory({ logger: broken })
    expect(() => publish.warning({ engine: 'redis', name: 'eviction', message: 'keys are evicted' })).not.toThrow()
    await locks.close()
  })

  test('does not keep a lock from being acquired and released', async () => {
    const { locks } = inMemory({ logger: broken })
    await expect(locks.mutex('a').using(() => 'done')).resolves.toBe('done')
    expect((await locks.inspect('a')).entries, 'no entry is left in the line').toEqual([])
  })

  test('does not stop the heartbeat', async () => {
    const { engine, clock, locks } = scripted({ logger: { ...broken, debug: () => {} } })
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    await (await engine.next('renew')).fail(unreachable())
    await settled()
    await clock.advance(TTL)
    expect(asked.value.signal.reason).toMatchObject({ why: 'deadline' })
  })
})
