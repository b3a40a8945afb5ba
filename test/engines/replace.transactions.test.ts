/** `turn.batch`, `turn.publish` and `removeRetired` inside the user's own transactions, with each driver. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect.ts'
import type { HoldfastError } from '../../src/core/errors.ts'
import type { Locks } from '../../src/locks.ts'
import {
  type ReplaceOptions,
  removeRetired,
  replace,
  SupersededError,
  type Turn,
} from '../../src/recipes/replace/index.ts'
import { builtModule } from '../built.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer, present } from '../servers/suite.ts'
import type { List, Lists } from './replace.lists.ts'

type Url = `postgres://${string}`

const KEY = 'group:1'

async function open(kind: keyof Lists, url: string): Promise<List> {
  builtModule('src/index.ts')
  const { lists } = (await import('./replace.lists.mjs' as string)) as { lists: Lists }
  return lists[kind](url)
}

/** One upload of a list whose batches have these emails. */
function upload(list: List, batches: readonly (readonly string[])[], between: (turn: Turn) => unknown = () => {}) {
  return async (turn: Turn): Promise<void> => {
    let number = turn.stored
    for await (const emails of turn.resume(batches)) {
      number += 1
      await list.begin((tx) => turn.batch(tx, () => list.insert(tx, turn.generation, number, emails)))
      await between(turn)
    }
    await list.begin((tx) => turn.publish(tx, (generation) => list.flip(tx, generation)))
  }
}

async function emails(list: List): Promise<readonly string[]> {
  return (await list.seen()).map(({ email }) => email)
}

interface Setting extends Pick<ReplaceOptions, 'store'> {
  /** Whether the record can be changed while another transaction is open. */
  readonly overlapping?: boolean
}

/** The properties, with any driver. */
async function checkList(locks: Locks, list: List, { overlapping = true, ...store }: Setting = {}): Promise<void> {
  await list.setup()
  await replace(locks, KEY, store, upload(list, [['a'], ['b']]))
  expect(await emails(list)).toEqual(['a', 'b'])

  // A transaction that is rolled back takes its batch with it, and it can be stored again.
  let failures = 0
  await replace(locks, KEY, store, async (turn) => {
    for await (const batch of turn.resume([['c'], ['d']])) {
      const once = (before: () => void): Promise<unknown> =>
        list.begin((tx) => turn.batch(tx, () => list.insert(tx, turn.generation, 1, batch)), before)
      const fail = (): void => {
        failures += 1
        throw new Error('no more')
      }
      await expect(once(fail)).rejects.toThrow('no more')
      await once(() => {})
      // The answer to the commit was lost, and the work stores it once more: it is there already.
      await once(() => {})
    }
    const publish = (before: () => void): Promise<void> =>
      list.begin((tx) => turn.publish(tx, (generation) => list.flip(tx, generation)), before)
    await expect(publish(() => Promise.reject(new Error('roll back')) as never)).rejects.toThrow('roll back')
    expect(await emails(list)).toEqual(['a', 'b'])
    await publish(() => {})
    await publish(() => {})
  })
  expect(failures).toBe(2)
  expect(await emails(list)).toEqual(['c', 'd'])

  // Superseded in the middle of its transaction: what it has inserted is rolled back.
  let newer: Promise<unknown> | undefined
  let refused: unknown
  const older = replace(locks, KEY, { ...store, upload: 'old' }, async (turn) => {
    await list.begin((tx) => turn.batch(tx, () => list.insert(tx, turn.generation, 1, ['old'])))
    const aborted = new Promise((resolve) => turn.signal.addEventListener('abort', resolve))
    newer = replace(locks, KEY, { ...store, upload: 'new' }, upload(list, [['new 1'], ['new 2']]))
    await aborted
    refused = await list
      .begin((tx) => turn.publish(tx, (generation) => list.flip(tx, generation)))
      .catch((error: unknown) => error)
    throw refused
  })
  await expect(older).rejects.toThrow(SupersededError)
  expect(refused).toBeInstanceOf(SupersededError)
  await newer
  expect(await emails(list)).toEqual(['new 1', 'new 2'])

  if (overlapping) await checkOverlap(locks, list, store)
  await checkFence(locks, list, store)

  expect((await list.generations()).length).toBeGreaterThan(1)
  const retired = await removeRetired(locks, KEY, {
    ...store,
    begin: (work) => list.begin(work),
    remove: (tx, generations) => list.remove(tx, generations),
    limit: 2,
  })
  expect(retired.length).toBeGreaterThan(2)
  const [seen] = await list.seen()
  expect(await list.generations()).toEqual([seen?.generation])

  // What is no transaction is refused.
  const wrong = replace(locks, KEY, store, (turn) => turn.batch('no transaction', () => {}))
  await expect(wrong).rejects.toThrow(TypeError)

  // The work returns, and the transaction was rolled back.
  const forgotten = replace(locks, KEY, store, async (turn) => {
    const rollBack = (): never => {
      throw new Error('roll back')
    }
    await list.begin((tx) => turn.publish(tx), rollBack).catch(() => {})
  })
  await expect(forgotten).rejects.toThrow(/was not committed when the work for 'group:1' ended/)
  expect(await emails(list)).toEqual(['new 1', 'new 2'])
}

/** The newer one is accepted while the older one is between its insert and its commit. */
async function checkOverlap(locks: Locks, list: List, store: Pick<ReplaceOptions, 'store'>): Promise<void> {
  const before = await list.generations()
  let newer: Promise<unknown> | undefined
  const older = replace(locks, KEY, { ...store, upload: 'slow' }, (turn) =>
    list.begin((tx) =>
      turn.batch(tx, async () => {
        await list.insert(tx, turn.generation, 1, ['slow'])
        const aborted = new Promise((resolve) => turn.signal.addEventListener('abort', resolve))
        newer = replace(locks, KEY, { ...store, upload: 'fast' }, () => Promise.reject(new Error('it fails')))
        newer.catch(() => {})
        await aborted
      }),
    ),
  )
  const refused = await older.catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(SupersededError)
  expect((refused as HoldfastError & { by: unknown }).by).toMatchObject({ upload: 'fast' })
  await expect(newer).rejects.toThrow('it fails')
  expect(await list.generations()).toEqual(before)
}

/** Nothing tells the older one, and its lease is held: what is stored refuses it. */
async function checkFence(locks: Locks, list: List, store: Pick<ReplaceOptions, 'store'>): Promise<void> {
  const before = await emails(list)
  const { engine } = locks
  const { evict } = engine
  engine.evict = async () => false
  try {
    let newer: Promise<unknown> | undefined
    const older = replace(locks, KEY, { ...store, upload: 'deaf' }, async (turn) => {
      await list.begin((tx) => turn.batch(tx, () => list.insert(tx, turn.generation, 1, ['deaf'])))
      newer = replace(locks, KEY, { ...store, upload: 'next' }, () => Promise.reject(new Error('it fails')))
      newer.catch(() => {})
      // It stands in the line when it was accepted.
      for await (const { entries } of locks.watch(`replace:${KEY}`, { every: 10 })) if (entries.length > 1) break
      expect(turn.signal.aborted).toBe(false)
      const step = (work: (tx: unknown) => Promise<unknown>): Promise<unknown> =>
        list.begin(work).catch((error: unknown) => error)
      const refused = [
        await step((tx) => turn.batch(tx, () => list.insert(tx, turn.generation, 2, ['late']))),
        turn.signal.reason,
      ]
      for (const error of refused) expect(error).toMatchObject({ code: 'SUPERSEDED', by: { upload: 'next' } })
      throw refused[0]
    })
    await expect(older).rejects.toThrow(SupersededError)
    await expect(newer).rejects.toThrow('it fails')
    const publishing = replace(locks, KEY, { ...store, upload: 'deaf too' }, async (turn) => {
      newer = replace(locks, KEY, { ...store, upload: 'last' }, () => Promise.reject(new Error('it fails')))
      newer.catch(() => {})
      for await (const { entries } of locks.watch(`replace:${KEY}`, { every: 10 })) if (entries.length > 1) break
      await list.begin((tx) => turn.publish(tx, (generation) => list.flip(tx, generation)))
    })
    await expect(publishing).rejects.toMatchObject({ code: 'SUPERSEDED', by: { upload: 'last' } })
    await expect(newer).rejects.toThrow('it fails')
    expect(await emails(list)).toEqual(before)
  } finally {
    engine.evict = evict
  }
}

describe('a list on SQLite', () => {
  test('is replaced inside of transactions', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-replace-'))
    const url = `sqlite:${join(folder, 'list.db')}` as const
    await using locks = await connect(url)
    const list = await open('sqlite', url)
    try {
      // One writer at a time: a newer upload is accepted when the transaction of the older one has ended.
      await checkList(locks, list, { overlapping: false })
    } finally {
      await list.close()
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

await describeServer('a list on PostgreSQL', findPostgres, (source) => {
  for (const kind of ['pg', 'postgresjs'] as const)
    test(`is replaced inside of transactions: ${kind}`, async () => {
      await using server = await PostgresServer.start(source)
      const url = await server.database()
      await using locks = await connect(url as Url)
      const list = await open(kind, url)
      try {
        await checkList(locks, list)
      } finally {
        await list.close()
      }
    })

  test('is replaced under locks of another engine', async (context) => {
    await using server = await PostgresServer.start(source)
    await using redis = await RedisServer.start(present(await findRedis(), context))
    const url = await server.database()
    await using locks = await connect(redis.url as `redis://${string}`)
    await using store = await connect(url as Url)
    const list = await open('pg', url)
    try {
      await checkList(locks, list, { store })
    } finally {
      await list.close()
    }
  })
})

await describeServer('a list on MariaDB', findMariadb, (source) => {
  test('is replaced inside of transactions: mysql2', async () => {
    await using server = await MariadbServer.start(source)
    await using locks = await connect(server.url as `mysql://${string}`)
    const list = await open('mysql', server.url)
    try {
      await checkList(locks, list)
    } finally {
      await list.close()
    }
  })
})
