/** A lease says whether others may hold beside it. */
import { expect, test } from 'vitest'
import { inMemory } from './world.ts'

test('a lease is shared unless it takes the whole limit', async () => {
  const { locks } = inMemory()
  expect((await locks.mutex('a').acquire()).shared).toBe(false)
  expect((await locks.rw('b').write.acquire()).shared).toBe(false)
  expect((await locks.rw('c').read.acquire()).shared).toBe(true)
  expect((await locks.semaphore('d', 2).acquire()).shared).toBe(true)
  expect((await locks.semaphore('e', 2).acquire({ weight: 2 })).shared).toBe(false)
  expect((await locks.semaphore('f', 1).acquire()).shared).toBe(false)
})

test('one of several keys is as shared as its parts, a nested one as what it is nested in', async () => {
  const { locks } = inMemory()
  expect((await locks.all([locks.mutex('a'), locks.mutex('b')]).acquire()).shared).toBe(false)
  expect((await locks.all([locks.mutex('c'), locks.rw('d').read]).acquire()).shared).toBe(true)
  const write = await locks.rw('e').write.acquire()
  expect((await locks.rw('e').read.acquire({ within: write })).shared).toBe(false)
})
