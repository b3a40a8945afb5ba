/**
 * Nothing is left: no timer, no socket, no listener, no entry, no row, after ten thousand cycles of everything that
 * begins and ends.
 */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { setImmediate as turn } from 'node:timers/promises'
import { type Clock, systemClock, type Timer } from '../../src/core/clock.ts'
import type { Engine } from '../../src/core/engine.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import type { Group } from '../case.ts'
import { actors, ownTtl, leftovers as shows } from '../needs.ts'
import { later, type Scene } from '../scene.ts'

const CYCLES = 10_000
const AT_ONCE = 100
/** Sockets and files are closed a little after they are let go. */
const CLOSING_MS = 5_000

/** The system's clock, which knows how many timers stand. */
function countingClock(): Clock & { readonly standing: number } {
  const standing = new Set<object>()
  const counted = (make: (over: () => void) => Timer): Timer => {
    const mark = {}
    const over = (): boolean => standing.delete(mark)
    standing.add(mark)
    const timer = make(over)
    return {
      cancel() {
        over()
        timer.cancel()
      },
    }
  }
  return {
    now: () => systemClock.now(),
    timer: (delayMs, fire) =>
      counted((over) =>
        systemClock.timer(delayMs, () => {
          over()
          fire()
        }),
      ),
    stayAlive: () => counted(() => systemClock.stayAlive()),
    get standing() {
      return standing.size
    },
  }
}

/**
 * One cycle of each kind: had and released; taken, so tried in vain; taken, so waited for and cancelled; waited for
 * until its wait ran out.
 */
async function cycles(locks: Locks, taken: string, stop: AbortSignal): Promise<void> {
  const cancel = new AbortController()
  const signal = AbortSignal.any([cancel.signal, stop])
  const work = Array.from({ length: AT_ONCE }, async (_, index) => {
    switch (index % 4) {
      case 0:
      case 1: {
        const lease = await locks.mutex(`${taken}:${index % 32}`).acquire({ signal: stop })
        // A holder that has looked at the signal has made one.
        assert.equal(lease.signal.aborted, false)
        await lease.release()
        return
      }
      case 2:
        assert.equal(await locks.mutex(taken).tryAcquire({ signal: stop }), undefined)
        return
      default:
        await assert.rejects(locks.mutex(taken).acquire(index % 8 === 3 ? { signal } : { wait: 1, signal: stop }))
    }
  })
  const settled = later(Promise.all(work))
  await turn()
  cancel.abort(new Error('enough'))
  await settled
}

/** What keeps this process alive, by kind. */
function resources(): Map<string, number> {
  const kinds = new Map<string, number>()
  for (const kind of process.getActiveResourcesInfo()) kinds.set(kind, (kinds.get(kind) ?? 0) + 1)
  return kinds
}

async function stored(scene: Scene): Promise<readonly string[]> {
  return (await scene.world.leftovers?.()) ?? []
}

/** A client that has been in a line, so that whatever the server stores for a client is there. */
async function knownEngine(scene: Scene): Promise<Engine> {
  const engine = await scene.engine()
  await comeAndGo(engine, scene)
  return engine
}

async function comeAndGo(engine: Engine, scene: Scene): Promise<void> {
  const claim = scene.claim(scene.key())
  await engine.enter([claim])
  await engine.leave([claim])
}

/**
 * Until the server stores nothing that it did not store before. Engines may clear away when an entry comes to a line,
 * or when a client is new, so an entry of a new client comes.
 */
async function nothingMore(
  scene: Scene,
  before: readonly string[],
  onlooker: Engine,
  keys: readonly string[],
): Promise<void> {
  let more: readonly string[] = []
  const look = async (): Promise<boolean> => {
    for (const key of keys) await onlooker.inspect(key)
    const newcomer = await scene.world.engine()
    await comeAndGo(newcomer, scene)
    await newcomer[Symbol.asyncDispose]()
    more = (await stored(scene)).filter((item) => !before.includes(item))
    return more.length === 0
  }
  await scene.eventually('nothing more is stored', look).catch(() => assert.deepEqual(more, []))
}

export const leftovers: Group = {
  property: 'nothing left',
  cases: [
    {
      name: `after ${CYCLES} cycles of acquire, cancel and release: no timer, no socket, no listener, no entry, nothing stored`,
      limitMs: 60_000,
      async run(scene) {
        const engine = await knownEngine(scene)
        const before = resources()
        const storedBefore = await stored(scene)
        const clock = countingClock()
        const key = scene.key()
        const [locks, holding] = await Promise.all([scene.locks({ clock }), scene.locks()])
        const stop = new AbortController()
        const held = await holding.mutex(key).acquire()
        for (let done = 0; done < CYCLES * scene.rounds; done += AT_ONCE) await cycles(locks, key, stop.signal)
        await scene.eventually('an empty line', async () => {
          const keys: string[] = []
          for await (const summary of engine.list(key)) keys.push(summary.key)
          return keys.length === 1 && keys[0] === key
        })
        assert.equal(getEventListeners(stop.signal, 'abort').length, 0, 'listeners on a signal that all cycles shared')
        await scene.eventually(
          'one beat for renewals and one for leaves, and no other timer',
          () => clock.standing <= 2,
        )
        await held.release()
        await Promise.all([locks.close(), holding.close()])
        assert.equal(clock.standing, 0, 'timers that stand after the locks were closed')
        const noMore = (): boolean => [...resources()].every(([kind, count]) => count <= (before.get(kind) ?? 0))
        await scene.eventually('no more resources than before', noMore, CLOSING_MS)
        await nothingMore(scene, storedBefore, engine, [key])
      },
    },
    {
      name: 'an engine keeps no listener on the signals it is given',
      async run(scene) {
        const engine = await scene.engine()
        const { signal } = new AbortController()
        for (let call = 0; call < 20; call += 1) {
          const claim = scene.claim(scene.key())
          await engine.enter([claim], signal)
          await engine.renew([claim], signal)
        }
        assert.equal(getEventListeners(signal, 'abort').length, 0)
      },
    },
    {
      name: 'the server stores nothing for lines without entries',
      // Some are left to expire.
      needs: [shows, ownTtl],
      async run(scene) {
        const keys = Array.from({ length: 200 }, (_, index) => scene.key(`stored ${index}`))
        const onlooker = await knownEngine(scene)
        const before = await stored(scene)
        const locks = createLocks(await scene.world.engine(), { ttl: scene.longTtlMs })
        await Promise.all(keys.flatMap((key) => [1, 2, 3].map(() => locks.mutex(key).using(async () => {}))))
        await locks.close()
        await onlooker.enter(keys.map((key) => scene.claim(key, { ttlMs: scene.shortTtlMs })))
        await nothingMore(scene, before, onlooker, keys)
      },
    },
    {
      name: 'the server stores nothing for processes that were killed',
      needs: [shows, actors],
      async run(scene) {
        const keys = [scene.key('held'), scene.key('waited for')]
        const [held, waited] = keys as [string, string]
        const onlooker = await knownEngine(scene)
        const before = await stored(scene)
        const claim = scene.claim(waited)
        await onlooker.enter([claim])
        const actor = await scene.actor({ ttlMs: scene.fairTtlMs })
        await actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key: held } })
        void actor.ask('acquire', { lease: 'b', lock: { kind: 'mutex', key: waited } })
        await scene.inLine(onlooker, waited, 2)
        await actor.kill()
        await scene.inLine(onlooker, waited, 1)
        await onlooker.leave([claim])
        await nothingMore(scene, before, onlooker, keys)
      },
    },
    {
      name: 'no rejection went unhandled, in any process, in all of this',
      async run() {
        // Every case is watched; this one is for what came after the last of them.
        await new Promise((resolve) => setImmediate(resolve))
      },
    },
  ],
}
