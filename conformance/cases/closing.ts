/** The end of a client: what closing ends, what it refuses, and what it does to the process around it. */
import assert from 'node:assert/strict'
import { EngineError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import type { Locks } from '../../src/locks.ts'
import type { Group } from '../case.ts'
import { actors, ending } from '../needs.ts'
import { later } from '../scene.ts'

const closed = (error: unknown): boolean =>
  error instanceof EngineError && !error.transient && error.outcome === 'not-applied'

/** Whatever a client can be asked for. */
function everything(locks: Locks, key: string): readonly (() => Promise<unknown>)[] {
  return [
    () => locks.mutex(key).acquire(),
    () => locks.mutex(key).tryAcquire(),
    () => locks.mutex(key).using(() => 'done'),
    () => locks.all([locks.mutex(key)]).acquire(),
    () => locks.all([locks.mutex(key)]).tryAcquire(),
    () => locks.election(key).lead(() => 'done'),
    () => locks.election(key).leader(),
    () => locks.election(key).observe().next(),
    () => locks.watch(key).next(),
    () => locks.inspect(key),
    () => locks.list(key).next(),
    () => locks.evict(key, 1n),
    () => locks.ping(),
  ]
}

export const closing: Group = {
  property: 'closing',
  atOnce: true,
  cases: [
    {
      name: 'what a listener asks for, when it hears of the closing, is refused: the next client holds alone',
      async run(scene) {
        const [locks, other] = await Promise.all([scene.locks(), scene.locks()])
        const key = scene.key()
        const lease = await locks.mutex(key).acquire()
        const asked: Promise<Lease>[] = []
        lease.signal.addEventListener('abort', () => asked.push(later(locks.mutex(key).acquire())))
        await locks.close()
        assert.equal(asked.length, 1, 'the listener has asked')
        await assert.rejects(Promise.all(asked), closed)
        assert.equal((await other.mutex(key).acquire()).held, true)
      },
    },
    {
      name: 'closing refuses those who wait, and ends those who watch and observe',
      async run(scene) {
        const locks = await scene.locks()
        const key = scene.key()
        await locks.mutex(key).acquire()
        const waiter = later(locks.mutex(key).acquire())
        const seen = new Set<string>()
        const watch = async (): Promise<void> => {
          for await (const line of locks.watch(key)) seen.add(`watched ${line.key}`)
        }
        const observe = async (): Promise<void> => {
          for await (const leader of locks.election(key).observe()) seen.add(`observed ${leader?.holder}`)
        }
        const ended = later(Promise.all([watch(), observe()]))
        await scene.eventually('both have seen something', () => seen.size >= 2)
        await locks.close()
        await ended
        await assert.rejects(waiter, closed)
      },
    },
    {
      name: 'after the closing whatever is asked for is refused, in words that say so',
      async run(scene) {
        const locks = await scene.locks()
        const key = scene.key()
        const lease = await locks.mutex(key).acquire()
        await locks.close()
        for (const ask of everything(locks, key)) await assert.rejects(ask(), closed, ask.toString())
        assert.equal(await lease.release(), false)
        assert.equal(lease.held, false)
      },
    },
    {
      name: 'a process that closes its locks goes on after it, though nothing else keeps it alive',
      needs: [actors],
      async run(scene) {
        const { out, exit } = await scene.program('closes', scene.key())
        assert.deepEqual({ out, exit }, { out: 'held, closed', exit: 'code 0' })
      },
    },
    {
      name: 'a process whose work awaits nothing but the signal of its lease stays alive until the work has ended',
      needs: [actors],
      async run(scene) {
        const { out, exit } = await scene.program('only works', scene.key())
        const expected = 'works, is told, works, is told, closed'
        assert.deepEqual({ out, exit }, { out: expected, exit: 'code 0' })
      },
    },
    {
      name: 'a process that awaits nothing ends, though it holds a lock and has closed nothing',
      needs: [actors, ending],
      async run(scene) {
        const { out, exit } = await scene.program('just ends', scene.key())
        assert.deepEqual({ out, exit }, { out: 'held', exit: 'code 0' })
      },
    },
  ],
}
