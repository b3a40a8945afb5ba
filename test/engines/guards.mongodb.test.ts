/** The guard of MongoDB, with the official driver, on the stand-in: marks in documents, and inside of transactions. */
import { type Collection, MongoClient, MongoServerError } from 'mongodb'
import { MongoClient as MongoClient5 } from 'mongodb5'
import { MongoClient as MongoClient6 } from 'mongodb6'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { EngineError, StaleTokenError } from '../../src/core/errors.ts'
import { guard, type MongodbGuard } from '../../src/guards/mongodb.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { expectForgetting, expectRule, leaseLike } from './guards.rule.ts'

const LIMIT = { timeout: 20_000, interval: 10 }
const LIMIT_MS = 120_000

interface Account {
  _id: number | string
  balance: number
}

describe('the guard of MongoDB, on a stand-in', () => {
  let server: StandIn
  let client: MongoClient
  let guarded: MongodbGuard
  let accounts: Collection<Account>

  beforeAll(async () => {
    server = await StandIn.start({ replicaSet: true })
    client = new MongoClient(server.url)
    guarded = guard({ client })
    await guarded.setup()
    await guarded.setup()
    accounts = client.db().collection<Account>('account')
  })
  afterAll(async () => {
    await client.close()
    await server.close()
  })

  const inside = async <Result>(
    work: (session: ReturnType<MongoClient['startSession']>) => Promise<Result>,
  ): Promise<Result> =>
    await client.withSession(async (session) => await session.withTransaction(async () => await work(session)))

  test('decides as the pure rule does, in transactions', async () => {
    await expectRule(
      {
        check: (access, lease) =>
          inside((session) => (access === 'read' ? guarded.read(session, lease) : guarded.write(session, lease))),
        list: (prefix) => guarded.list(prefix),
      },
      15,
    )
  })

  test('decides as the pure rule does, in documents', async () => {
    const marks = client.db().collection<{ _id: string; holdfast?: { seen: unknown; written: unknown } }>('documents')
    await expectRule(
      {
        check: async (access, lease) => {
          const known = { _id: lease.key }
          if (access === 'write') {
            await guarded.updateOne(marks, lease, known, { $set: { by: 'write' } }, { upsert: true })
            return
          }
          // A document that is not there has not been read.
          if (lease.token !== null) await marks.updateOne(known, { $set: { by: 'setup' } }, { upsert: true })
          await guarded.findOne(marks, lease, known)
        },
        list: async (prefix) => {
          const found = await marks.find({ _id: { $gte: prefix } }, { sort: { _id: 1 } }).toArray()
          const exact = (value: unknown): bigint => BigInt(String(value))
          return found
            .filter(({ _id, holdfast }) => _id.startsWith(prefix) && holdfast !== undefined)
            .map(({ _id, holdfast }) => ({
              resource: _id,
              seen: exact(holdfast?.seen),
              written: exact(holdfast?.written),
            }))
        },
      },
      15,
    )
  })

  test('a stale write changes nothing, and says both tokens', async () => {
    await accounts.insertOne({ _id: 1, balance: 100 })
    await guarded.updateOne(accounts, leaseLike(9n), { _id: 1 }, { $inc: { balance: 10 } })
    const stale = guarded.updateOne(accounts, leaseLike(8n), { _id: 1 }, { $inc: { balance: 1 } })
    await expect(stale).rejects.toMatchObject({ name: 'StaleTokenError', resource: 'order', offered: 8n, seen: 9n })
    const read = guarded.findOne(accounts, leaseLike(8n), { _id: 1 })
    await expect(read).rejects.toThrow(StaleTokenError)
    expect((await accounts.findOne({ _id: 1 }))?.balance).toBe(110)
  })

  test('a write after a read of a newer holder is refused: it has seen the value from before', async () => {
    await accounts.insertOne({ _id: 2, balance: 100 })
    expect(await guarded.findOne(accounts, leaseLike(8n), { _id: 2 })).toMatchObject({ balance: 100 })
    expect(await guarded.findOne(accounts, leaseLike(9n), { _id: 2 })).toMatchObject({ balance: 100 })
    const late = guarded.updateOne(accounts, leaseLike(8n), { _id: 2 }, { $set: { balance: 0 } })
    await expect(late).rejects.toThrow(StaleTokenError)
  })

  test('a document that is not there is not found, and an upsert makes it with its mark', async () => {
    const set = { $set: { balance: 1 } }
    expect(await guarded.findOne(accounts, leaseLike(5n), { _id: 3 })).toBeNull()
    expect((await guarded.updateOne(accounts, leaseLike(5n), { _id: 3 }, set)).matchedCount).toBe(0)
    const made = await guarded.updateOne(accounts, leaseLike(5n), { _id: 3 }, set, { upsert: true })
    expect(made.upsertedCount).toBe(1)
    const stale = guarded.updateOne(accounts, leaseLike(4n), { _id: 3 }, set, { upsert: true })
    await expect(stale).rejects.toMatchObject({ offered: 4n, seen: 5n })
  })

  test('a stale upsert in a transaction is told so, and the transaction is not begun again', async () => {
    const set = { $set: { balance: 1 } }
    await guarded.updateOne(accounts, leaseLike(5n), { _id: 'in a transaction' }, set, { upsert: true })
    let runs = 0
    const stale = inside(async (session) => {
      runs += 1
      if (runs > 3) throw new Error('begun again and again')
      await guarded.updateOne(accounts, leaseLike(4n), { _id: 'in a transaction' }, set, { upsert: true, session })
    })
    await expect(stale).rejects.toMatchObject({ name: 'StaleTokenError', offered: 4n, seen: 5n })
    expect(runs).toBe(1)
  })

  test('a session without a transaction does not keep the look at the mark from the primary', async () => {
    await guarded.updateOne(accounts, leaseLike(5n), { _id: 'session' }, { $set: { balance: 1 } }, { upsert: true })
    const seen: unknown[] = []
    const looking = new MongoClient(server.url, { readPreference: 'secondaryPreferred', monitorCommands: true })
    looking.on('commandStarted', ({ commandName, command }) => {
      if (commandName === 'find') seen.push(command.$readPreference)
    })
    try {
      await looking.withSession(async (session) => {
        const theirs = looking.db().collection<Account>('account')
        const stale = guard({ client: looking }).updateOne(
          theirs,
          leaseLike(4n),
          { _id: 'session' },
          { $set: { balance: 2 } },
          { session },
        )
        await expect(stale).rejects.toThrow(StaleTokenError)
      })
    } finally {
      await looking.close()
    }
    expect(seen).toHaveLength(1)
    expect(seen).not.toContainEqual(expect.objectContaining({ mode: 'secondaryPreferred' }))
  })

  describe.each([
    ['mongodb 5', MongoClient5 as unknown as typeof MongoClient],
    ['mongodb 6', MongoClient6 as unknown as typeof MongoClient],
    ['mongodb 7', MongoClient],
  ])('with %s', (driver, Client) => {
    test.each([
      {},
      { w: 0 as const, promoteLongs: false, promoteValues: false },
      { useBigInt64: true, journal: false },
    ])(
      'set to %o, each write is done once, and stale tokens are refused, in documents and in transactions',
      async (set) => {
        const theirs = new Client(server.url, set)
        try {
          const [own, key] = [guard({ client: theirs }), `${driver} ${Object.keys(set).length}`]
          const found = theirs.db().collection<Account>('account')
          await accounts.insertOne({ _id: key, balance: 100 })
          await own.updateOne(found, leaseLike(2n ** 60n), { _id: key }, { $inc: { balance: 10 } })
          expect((await accounts.findOne({ _id: key }))?.balance).toBe(110)
          const late = leaseLike(2n ** 60n - 1n)
          await expect(own.findOne(found, late, { _id: key })).rejects.toThrow(StaleTokenError)
          const write = own.updateOne(found, late, { _id: key }, { $inc: { balance: 1 } })
          await expect(write).rejects.toMatchObject({ offered: 2n ** 60n - 1n, seen: 2n ** 60n })
          await theirs.withSession(async (session) => {
            const concern = { writeConcern: { w: 'majority' as const } }
            const inTurn = async (token: bigint): Promise<unknown> =>
              await session.withTransaction(async () => await own.write(session, leaseLike(token, key)), concern)
            await inTurn(2n ** 60n)
            await expect(inTurn(2n ** 60n - 1n)).rejects.toThrow(StaleTokenError)
          })
          expect(await own.list(key)).toEqual([{ resource: key, seen: 2n ** 60n, written: 2n ** 60n }])
        } finally {
          await theirs.close()
        }
      },
    )
  })

  test('marks are confirmed by a majority whatever the client is set to, unless the call says otherwise', async () => {
    const concerns: unknown[] = []
    const careless = new MongoClient(server.url, { w: 1, monitorCommands: true })
    careless.on('commandStarted', ({ commandName, command }) => {
      if (commandName === 'update' || commandName === 'findAndModify') concerns.push(command.writeConcern?.w)
    })
    try {
      await accounts.insertOne({ _id: 'careless', balance: 1 })
      const found = careless.db().collection<Account>('account')
      const [own, lease] = [guard({ client: careless }), leaseLike(5n)]
      const change = (options: object): Promise<unknown> =>
        own.updateOne(found, lease, { _id: 'careless' }, { $set: { balance: 2 } }, options)
      await own.findOne(found, lease, { _id: 'careless' })
      await change({})
      await change({ writeConcern: { w: 1 } })
      expect(concerns).toEqual(['majority', 'majority', 1])
      await expect(change({ writeConcern: { w: 0 } })).rejects.toThrow(TypeError)
    } finally {
      await careless.close()
    }
  })

  test('the field of the mark is the name of one field of the document', () => {
    for (const field of ['', '_id', '$mark', 'meta.mark', 'a\0', 7 as never])
      expect(() => guard({ client, field }), String(field)).toThrow(/field must be/)
  })

  test('a pipeline is guarded as well; what would replace the mark is refused', async () => {
    await accounts.insertOne({ _id: 4, balance: 1 })
    await guarded.updateOne(accounts, leaseLike(5n), { _id: 4 }, [{ $set: { balance: { $add: ['$balance', 1] } } }])
    const stale = guarded.updateOne(accounts, leaseLike(4n), { _id: 4 }, [{ $set: { balance: 0 } }])
    await expect(stale).rejects.toThrow(StaleTokenError)
    expect((await accounts.findOne({ _id: 4 }))?.balance).toBe(2)
    await expect(guarded.updateOne(accounts, leaseLike(6n), { _id: 4 }, { balance: 0 })).rejects.toThrow(/operators/)
  })

  test("an error of the caller is the caller's: a unique key of another document", async () => {
    await accounts.createIndex({ iban: 1 }, { unique: true, sparse: true })
    const upsert = { upsert: true }
    await guarded.updateOne(accounts, leaseLike(5n), { _id: 5 }, { $set: { iban: 'X' } }, upsert)
    const other = guarded.updateOne(accounts, leaseLike(5n, 'other'), { _id: 6 }, { $set: { iban: 'X' } }, upsert)
    await expect(other).rejects.toThrow(MongoServerError)
  })

  test('what was refused in a transaction changes no mark', async () => {
    await inside((session) => guarded.write(session, leaseLike(9n, 'kept')))
    await inside(async (session) => {
      await expect(guarded.write(session, leaseLike(8n, 'kept'))).rejects.toThrow(StaleTokenError)
    })
    expect(await guarded.list('kept')).toEqual([{ resource: 'kept', seen: 9n, written: 9n }])
  })

  test('outside of a transaction it refuses', async () => {
    await client.withSession(async (session) => {
      await expect(guarded.write(session, leaseLike(1n, 'alone'))).rejects.toThrow(/needs an open transaction/)
    })
    await expect(guarded.read(client as never, leaseLike(1n, 'alone'))).rejects.toThrow(/ClientSession/)
  })

  test('a transaction that is overtaken begins again, and is refused then', async () => {
    await inside((session) => guarded.read(session, leaseLike(4n, 'waited')))
    const [mine, rival] = [client.startSession(), client.startSession()]
    try {
      mine.startTransaction()
      rival.startTransaction()
      await guarded.read(rival, leaseLike(6n, 'waited'))
      await expect(guarded.write(mine, leaseLike(5n, 'waited'))).rejects.toThrow(/[Ww]rite ?[Cc]onflict/)
      await rival.commitTransaction()
      await expect(inside((session) => guarded.write(session, leaseLike(5n, 'waited')))).rejects.toThrow(
        StaleTokenError,
      )
    } finally {
      await Promise.all([mine, rival].map((session) => session.endSession()))
    }
  })

  test('marks are forgotten after the time that the user chose since their last use, and never before', async () => {
    const marks = client.db().collection('holdfast_marks')
    await expectForgetting({
      check: async (forget, access, lease) => {
        const other = guard({ client, ...(forget === undefined ? {} : { forget }) })
        await inside((session) => (access === 'read' ? other.read(session, lease) : other.write(session, lease)))
      },
      list: (prefix) => guarded.list(prefix),
      pass: async (ms) =>
        void (await marks.updateMany({ kept_until: { $type: 'date' } }, [
          { $set: { kept_until: { $subtract: ['$kept_until', ms] } } },
        ])),
      forget: () => guarded.forget(),
    })
  })

  test('marks of a newer version are refused and left alone; marks are reset only with their present value', async () => {
    const marks = client
      .db()
      .collection<{ _id: string; format: number; seen: number; written: number }>('holdfast_marks')
    await marks.insertOne({ _id: 'future', format: 2, seen: 1, written: 1 })
    for (const access of ['read', 'write'] as const)
      await expect(inside((session) => guarded[access](session, leaseLike(5n, 'future')))).rejects.toThrow(EngineError)
    expect([await guarded.reset('future', 4n), await guarded.reset('future', 1n)]).toEqual([false, true])
    await accounts.insertOne({ _id: 7, balance: 1, holdfast: { format: 2 } } as never)
    const write = guarded.updateOne(accounts, leaseLike(5n), { _id: 7 }, { $set: { balance: 2 } })
    await expect(write).rejects.toThrow(/newer Holdfast/)
  })

  test('a refusal of the second attempt of a reset does not hide that the first was done', {
    timeout: LIMIT_MS,
  }, async () => {
    const marks = client.db().collection<{ _id: string; seen: number }>('holdfast_marks')
    await marks.insertOne({ _id: 'repeated', seen: 1 })
    await using proxy = await FaultProxy.start({ port: server.port })
    // As in mongodb.outcomes.test.ts: one connection, and a monitor that is not about to ask.
    const settings = 'maxPoolSize=1&serverMonitoringMode=poll&heartbeatFrequencyMS=600000'
    const cut = new MongoClient(`${server.urlThrough(proxy.port)}&${settings}`)
    const admin = new MongoClient(server.urlThrough(server.port))
    try {
      const far = guard({ client: cut })
      await far.list()
      const { written } = server
      proxy.blackHole('replies')
      const refused = expect(far.reset('repeated', 1n)).rejects.toMatchObject({ outcome: 'unknown', transient: false })
      await vi.waitFor(() => expect(server.written).toBeGreaterThan(written), LIMIT)
      const data = { failCommands: ['delete'], errorCode: 13 }
      await admin.db('admin').command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data })
      proxy.reset()
      await proxy.heal()
      await refused
      expect(await marks.findOne({ _id: 'repeated' })).toBeNull()
    } finally {
      await cut.close()
      await admin.close()
    }
  })
})
