/** `keyed()`, as far as no server is needed: its arguments. The rest is in engines/bullmq.test.ts. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { type KeyedJob, keyed } from '../../src/frameworks/bullmq.ts'
import { createLocks, type Locks } from '../../src/locks.ts'

let locks: Locks
beforeEach(() => {
  locks = createLocks(memory())
})
afterEach(() => locks.close())

const job = (user?: string): KeyedJob & { readonly data: { readonly user?: string | undefined } } => ({
  queueName: 'mail',
  data: { user },
  moveToDelayed: async () => {
    throw new Error('it was not busy')
  },
})

describe('keyed', () => {
  test('gives the processor what BullMQ gave, and the lease', async () => {
    const work = keyed(
      locks,
      ({ data }: ReturnType<typeof job>) => data.user,
      { limit: 3 },
      async (_job, token, signal, lease) => [token, signal?.aborted, lease?.key],
    )
    expect(await work(job('ann'), 'token')).toEqual(['token', false, 'bullmq:mail:ann'])
    expect(await work(job(), 'token'), 'a job without a key').toEqual(['token', undefined, undefined])
    await expect(work(job(''), 'token')).rejects.toThrow('a string that is not empty')
  })

  test('refuses what can never work, before any job', () => {
    const make = (options: object) => () =>
      keyed(
        locks,
        () => 'a',
        options,
        async () => undefined,
      )
    expect(make({ limt: 3 })).toThrow("unknown option 'limt' in keyed(); did you mean 'limit'?")
    expect(make({ limit: 0 })).toThrow('the limit of a semaphore')
    expect(make({ wait: 'soon' })).toThrow(/wait/)
    expect(() => keyed(locks, 'user' as never, {}, async () => undefined)).toThrow('keyed takes locks, a function')
  })
})
