/**
 * A short program in a process of its own, which ends by itself, or fails to: unlike an actor, nothing but its locks
 * keeps it alive.
 *
 * It is started by `runProgram` (run-program.ts), never by hand. It takes one lock for a moment, and holds another or
 * works under it.
 */
import { once } from 'node:events'
import type { Engine } from '../../src/core/engine.ts'
import type { Lease } from '../../src/core/lease.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import type { Program } from './run-program.ts'

async function run({ engine: from, key, ttlMs, how }: Program): Promise<void> {
  const module = (await import(from.module)) as Record<string, (options: unknown) => Engine | Promise<Engine>>
  const make = module[from.export]
  if (typeof make !== 'function') throw new TypeError(`${from.module} exports no function '${from.export}'`)
  const locks = createLocks(await make(from.options), { ttl: ttlMs, holder: 'program' })
  await locks.mutex(`${key}:short`).using(() => undefined)
  if (how === 'only works') return work(locks, key)
  await locks.mutex(key).acquire()
  process.stdout.write('held')
  if (how === 'just ends') return
  await locks.close()
  process.stdout.write(', closed')
}

/** How long its work is let go on. */
const WORK_MS = 300

/** Its work awaits nothing but the signal of its lease, under a lock and then as a leader. */
async function work(locks: Locks, key: string): Promise<void> {
  const say = (text: string): boolean => process.stdout.write(text)
  const untilTold = async (lease: Lease): Promise<void> => {
    say('works, ')
    await once(lease.signal, 'abort')
  }
  const told = (): boolean => say('is told, ')
  await locks.mutex(key).using({ maxHold: WORK_MS }, untilTold).catch(told)
  await locks.election(`${key}:leader`).lead({ maxHold: WORK_MS }, untilTold).catch(told)
  await locks.close()
  say('closed')
}

process.once('message', (program) => {
  // Node does not bear it if the channel is closed by the handler of a message itself.
  setImmediate(() => {
    process.disconnect()
    void run(program as Program)
  })
})
