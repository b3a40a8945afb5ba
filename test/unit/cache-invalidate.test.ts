/**
 * An invalidation wins: over a fill that is under way, over what other processes are about to be given, and over the
 * first level of its own process. In random interleavings, on calls that take their time; and rules with a defect are
 * noticed.
 *
 * HOLDFAST_ROUNDS makes it longer.
 */
import { afterEach, describe, expect, test } from 'vitest'
import { faulty } from '../../conformance/faulty.ts'
import type { Change } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { type CacheOptions, cache } from '../../src/recipes/cache/index.ts'
import { fakeClock } from '../../src/testing.ts'
import { type FleetOptions, interleave, type Story, stores } from './cache-world.ts'
import { closeAll, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000)
/** Of each fleet: together they have more than 10,000 invalidations during a fill. */
const RUNS = 25 * ROUNDS
const PLAIN: CacheOptions = { ttl: '10s', jitter: 0 }

const FLEETS: Readonly<Record<string, FleetOptions>> = {
  'on a store that enters lines': {},
  'on any other store': { inOneStep: false },
  'on the store of another engine': { apart: true },
  'that serves stale values': { cache: { ttl: 1_000, stale: 2_000, softWait: 100 } },
  'that refreshes early': { cache: { ttl: 1_000, stale: 1_000, early: 50 } },
  'with a key-value store': { withValues: true, cache: { ttl: 1_000, stale: 2_000 } },
  'of one process with a first level': { processes: 1, cache: { local: { max: 10, ttl: '10s' } } },
  'of which some are stopped': { stops: true, cache: { ttl: 1_000, stale: 2_000 } },
  'of which some are stopped, apart from the store': { stops: true, apart: true },
  'of which some are stopped, with a key-value store': { stops: true, withValues: true },
}

async function runs(options: FleetOptions, count: number): Promise<Story> {
  const all: Story = { old: [], overlaps: 0, fills: 0, interleavings: 0 }
  for (let run = 0; run < count; run += 1) {
    const story = await interleave(SEED + run, options)
    all.old.push(...story.old)
    all.overlaps += story.overlaps
    all.fills += story.fills
    all.interleavings += story.interleavings
  }
  return all
}

describe.each(Object.entries(FLEETS))('a fleet %s', (_, options) => {
  test('gives no value that is older than an invalidation which had returned', {
    timeout: 60_000 * ROUNDS,
  }, async () => {
    const { old, overlaps, interleavings } = await runs(options, RUNS)
    expect(old).toEqual([])
    if (options.stops) expect(overlaps).toBeGreaterThan(0)
    else expect(overlaps, `fills at once, with HOLDFAST_SEED=${SEED}`).toBe(0)
    expect(interleavings).toBeGreaterThan(20 * RUNS)
  })
})

describe('a rule with a defect is noticed:', () => {
  const isRemoval = ({ value }: Change): boolean => value === null

  test('a value that is put without its version', async () => {
    const broken = (change: Change): Change => (stores('value', change) ? { ...change, when: {} } : change)
    expect((await runs({ broken }, 20)).old).not.toEqual([])
  })

  test('an invalidation that forgets values only, and no claims', async () => {
    const broken = (change: Change, stored: Uint8Array | null): Change | undefined =>
      isRemoval(change) && stores('filling', { value: stored }) ? undefined : change
    expect((await runs({ broken }, 20)).old).not.toEqual([])
  })

  test('waiters that do not look before they fill', async () => {
    const broken = (change: Change): Change => (stores('filling', change) ? { ...change, when: {} } : change)
    const options: FleetOptions = { inOneStep: false, cache: { ttl: '1h' }, processes: 8 }
    const [sound, defective] = [await runs(options, 10), await runs({ ...options, broken }, 10)]
    expect(sound.fills).toBeLessThan(defective.fills)
  })
})

test('a value that was invalidated while it was made is given to who asked before, and to no other', async () => {
  const { of } = fleet(2)
  const [here, there] = [cache(of(0).locks, PLAIN), cache(of(1).locks, PLAIN)]
  const work = gate<string>()
  const before = here.get('page', () => work.opened)
  await turns()
  await there.invalidate('page')
  const after = [here, there].map((pages) => pages.get('page', () => 'new'))
  await turns()
  work.open('old')
  expect(await before).toBe('old')
  expect(await Promise.all(after)).toEqual(['new', 'new'])
  expect(await here.get('page', () => 'newer')).toBe('new')
})

test('who comes while the value is being stored is not given it if it was invalidated meanwhile', async () => {
  const { of } = fleet(2, undefined, false)
  const [here, there] = [cache(of(0).locks, PLAIN), cache(of(1).locks, PLAIN)]
  // The second put of this process is that of its value. Its answer takes so long that there is time for the rest.
  of(0).answerDelay = (nth) => (nth === 2 ? 60 : 0)
  const before = here.get('page', () => 'old')
  await expect
    .poll(() => of(1).server.getRecords(['cache:page'])[0])
    .toMatchObject({
      stored: { value: expect.toSatisfy((value: Uint8Array) => Buffer.from(value).includes('old')) },
    })
  await there.invalidate('page')
  const after = here.get('page', () => 'new')
  expect(await before).toBe('old')
  expect(await after).toBe('new')
})

describe('the first level', () => {
  const LOCAL: CacheOptions = { ...PLAIN, local: { max: 2, ttl: '2s' } }

  test('is asked before the store, for its ttl, and has as many values as it may', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, LOCAL)
    for (const key of ['a', 'b']) await pages.get(key, () => key)
    of(0).turns.length = 0
    await pages.get('a', () => 'again')
    expect(of(0).turns).toEqual([])
    // 'b' was not asked for longest.
    await pages.get('c', () => 'c')
    of(0).turns.length = 0
    await pages.get('a', () => 'again')
    expect(of(0).turns).toEqual([])
    expect(await pages.get('b', () => 'again')).toBe('b')
    expect(of(0).turns).toEqual(['get'])
    await clock.advance('2s')
    expect(await pages.get('b', () => 'again')).toBe('b')
    expect(of(0).turns).toEqual(['get', 'get'])
  })

  test('serves no value for longer than it is fresh', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, LOCAL)
    await pages.get('a', { ttl: '1s' }, () => 'old')
    await clock.advance('1s')
    expect(await pages.get('a', () => 'new')).toBe('new')
  })

  test('keeps nothing for a process that stood still before it heard the answer: others have invalidated it', async () => {
    const clock = fakeClock()
    const server = new MemoryServer({ clock })
    const engine = faulty(memory({ server }))
    const here = cache(locksOn(engine, { clock }), LOCAL)
    const there = cache(locksOn(memory({ server }), { clock }), LOCAL)
    await there.get('a', () => 'old')
    const held = engine.next('get', 'hold reply')
    const asked = here.get('a', () => 'new')
    await held.reached
    await there.invalidate('a')
    clock.stall('3s')
    held.release()
    expect(await asked, 'asked for before').toBe('old')
    expect(await here.get('a', () => 'new')).toBe('new')
  })

  test('knows of invalidations of its own process at once, and of those of others after its ttl', async () => {
    const { clock, of } = fleet(2)
    const [here, there] = [cache(of(0).locks, LOCAL), cache(of(1).locks, LOCAL)]
    for (const pages of [here, there]) await pages.get('a', () => 'old')
    await here.invalidate('a')
    expect(await here.get('a', () => 'new')).toBe('new')
    expect(await there.get('a', () => 'newer')).toBe('old')
    await clock.advance('2s')
    expect(await there.get('a', () => 'newer')).toBe('new')
  })
})
