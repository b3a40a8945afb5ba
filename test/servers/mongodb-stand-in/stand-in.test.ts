/**
 * What the stand-in does beyond the recordings, by the official driver in its three major versions: it is killed and
 * frozen like a server, and does what the drivers' own retries, change streams and transactions rely on.
 */
import { type Collection, MongoClient } from 'mongodb'
import { MongoClient as MongoClient5 } from 'mongodb5'
import { MongoClient as MongoClient6 } from 'mongodb6'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { FaultProxy } from '../proxy.ts'
import { StandIn } from './stand-in.ts'

interface Line {
  readonly _id: string
  readonly n?: number
  readonly news?: string
}

const opened: AsyncDisposable[] = []

afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each[Symbol.asyncDispose]()
})

async function start(replicaSet = true): Promise<StandIn> {
  const standIn = await StandIn.start({ replicaSet })
  opened.push(standIn)
  return standIn
}

function open(url: string, Client: typeof MongoClient = MongoClient): MongoClient {
  const client = new Client(url, { serverSelectionTimeoutMS: 10_000 })
  opened.push({ [Symbol.asyncDispose]: () => client.close() })
  return client
}

const linesOf = (client: MongoClient): Collection<Line> => client.db('holdfast').collection<Line>('lines')

describe.each([
  ['5', MongoClient5 as unknown as typeof MongoClient],
  ['6', MongoClient6 as unknown as typeof MongoClient],
  ['7', MongoClient],
])('driver %s', (_, Client) => {
  test('writes, reads, watches and commits', async () => {
    const lines = linesOf(open((await start()).url, Client))
    await lines.insertOne({ _id: 'a', n: 1 })
    const stream = lines.watch([{ $match: { 'fullDocument._id': 'b' } }])
    opened.push({ [Symbol.asyncDispose]: () => stream.close() })
    const event = stream.next()
    // The cursor is made by the first question of the stream, which is on its way.
    await vi.waitFor(async () => {
      await lines.deleteOne({ _id: 'b' })
      await lines.insertOne({ _id: 'b' })
      expect(await Promise.race([event, Promise.resolve()])).toMatchObject({
        operationType: 'insert',
        documentKey: { _id: 'b' },
      })
    }, 20_000)
    await lines.updateOne({ _id: 'a' }, [{ $set: { n: { $add: ['$n', 1] } } }])
    expect(await lines.findOne({ n: { $gte: 2 } })).toEqual({ _id: 'a', n: 2 })
  })

  test('keeps an eye on it without a failure', async () => {
    const client = new Client((await start()).url, { heartbeatFrequencyMS: 500 })
    opened.push({ [Symbol.asyncDispose]: () => client.close() })
    const [succeeded, failed] = [vi.fn(), vi.fn()]
    client.on('serverHeartbeatSucceeded', succeeded).on('serverHeartbeatFailed', failed)
    await client.connect()
    await vi.waitFor(() => expect(succeeded.mock.calls.length).toBeGreaterThan(4), 20_000)
    expect(failed).not.toHaveBeenCalled()
  })

  test('is a client of a stand-alone server, too', async () => {
    const lines = linesOf(open((await start(false)).url, Client))
    await lines.bulkWrite([{ updateOne: { filter: { _id: 'a' }, update: [{ $set: { n: 1 } }], upsert: true } }])
    expect(await lines.countDocuments()).toBe(1)
    await expect(lines.watch().next()).rejects.toMatchObject({ code: 40573 })
  })
})

test('killed and started again, it has its documents, and a change stream goes on where it was', async () => {
  const standIn = await start()
  const lines = linesOf(open(standIn.url))
  await lines.insertOne({ _id: 'a' })
  const stream = lines.watch()
  opened.push({ [Symbol.asyncDispose]: () => stream.close() })
  expect(await stream.tryNext()).toBeNull()
  await lines.insertOne({ _id: 'b' })
  const { resumeToken } = stream
  await standIn.kill()
  await standIn.restart()
  expect(await lines.find().toArray()).toEqual([{ _id: 'a' }, { _id: 'b' }])
  const again = lines.watch([], { resumeAfter: resumeToken })
  opened.push({ [Symbol.asyncDispose]: () => again.close() })
  expect(await again.next()).toMatchObject({ operationType: 'insert', documentKey: { _id: 'b' } })
})

test('frozen, it answers nothing until it is resumed', async () => {
  const standIn = await start()
  const lines = linesOf(open(standIn.url))
  await lines.insertOne({ _id: 'a' })
  standIn.freeze()
  const answer = lines.findOne({ _id: 'a' })
  expect(await Promise.race([answer, new Promise((resolve) => setTimeout(resolve, 300, 'silence'))])).toBe('silence')
  standIn.resume()
  expect(await answer).toEqual({ _id: 'a' })
})

test('a write whose answer was lost is not done twice', async () => {
  const standIn = await start()
  await using proxy = await FaultProxy.start({ port: standIn.port })
  const lines = linesOf(open(standIn.urlThrough(proxy.port)))
  await lines.insertOne({ _id: 'a', n: 0 })
  proxy.blackHole('replies')
  const answer = lines.findOneAndUpdate({ _id: 'a' }, { $inc: { n: 1 } }, { returnDocument: 'after' })
  await vi.waitFor(() => expect(proxy.heldBytes('replies')).toBeGreaterThan(0), 20_000)
  proxy.reset()
  await proxy.heal()
  expect(await answer).toEqual({ _id: 'a', n: 1 })
  expect(await lines.findOne({ _id: 'a' })).toEqual({ _id: 'a', n: 1 })
})

test('of two transactions on one document the second has a conflict; a plain write waits', async () => {
  const client = open((await start()).url)
  const lines = linesOf(client)
  await lines.insertOne({ _id: 'a', n: 0 })
  await client.withSession(async (first) => {
    await client.withSession(async (second) => {
      first.startTransaction()
      second.startTransaction()
      await lines.updateOne({ _id: 'a' }, { $inc: { n: 1 } }, { session: first })
      const conflict = { code: 112, errorLabels: ['TransientTransactionError'] }
      await expect(lines.updateOne({ _id: 'a' }, { $inc: { n: 1 } }, { session: second })).rejects.toMatchObject(
        conflict,
      )
      const plain = lines.findOneAndUpdate({ _id: 'a' }, { $inc: { n: 10 } }, { returnDocument: 'after' })
      expect(await lines.findOne({ _id: 'a' })).toEqual({ _id: 'a', n: 0 })
      await first.commitTransaction()
      expect(await plain).toEqual({ _id: 'a', n: 11 })
      await second.abortTransaction()
    })
  })
})

test('a collection that is dropped ends its change stream', async () => {
  const lines = linesOf(open((await start()).url))
  await lines.insertOne({ _id: 'a' })
  const stream = lines.watch()
  opened.push({ [Symbol.asyncDispose]: () => stream.close() })
  expect(await stream.tryNext()).toBeNull()
  await lines.drop()
  expect(await stream.next()).toMatchObject({ operationType: 'drop' })
  expect(await stream.next()).toMatchObject({ operationType: 'invalidate' })
})

test('a collection that is renamed ends its change stream, and keeps its documents, also after a kill', async () => {
  const standIn = await start()
  const client = open(standIn.url)
  const lines = linesOf(client)
  await lines.insertOne({ _id: 'a' })
  const stream = lines.watch()
  opened.push({ [Symbol.asyncDispose]: () => stream.close() })
  expect(await stream.tryNext()).toBeNull()
  await lines.rename('renamed')
  expect(await stream.next()).toMatchObject({ operationType: 'rename', to: { coll: 'renamed' } })
  expect(await stream.next()).toMatchObject({ operationType: 'invalidate' })
  await standIn.kill()
  await standIn.restart()
  expect(await lines.countDocuments()).toBe(0)
  expect(await client.db(lines.dbName).collection('renamed').countDocuments()).toBe(1)
})

test('rolled back, it has what was written before, and nothing of what came after', async () => {
  const standIn = await start()
  const lines = linesOf(open(standIn.url))
  await lines.insertOne({ _id: 'kept' })
  const { written } = standIn
  await lines.insertOne({ _id: 'rolled back' })
  await standIn.rollBack(written)
  expect(await lines.find().toArray()).toEqual([{ _id: 'kept' }])
})

test('two hand-offs in a row are told as differences inside of arrays, and a string as a whole', async () => {
  const lines = linesOf(open((await start()).url))
  const long = 'x'.repeat(500)
  await lines.insertOne({ _id: 'a', news: 'me:1', entries: [{ id: '1', engine: 'me' }], long } as Line)
  const stream = lines.watch()
  opened.push({ [Symbol.asyncDispose]: () => stream.close() })
  expect(await stream.tryNext()).toBeNull()
  await lines.updateOne({ _id: 'a' }, [{ $set: { news: 'me:2', entries: [{ id: '2', engine: 'me' }] } }])
  expect(await stream.next()).toMatchObject({
    operationType: 'update',
    updateDescription: { updatedFields: { news: 'me:2', 'entries.0.id': '2' } },
  })
  await lines.insertOne({ _id: 'b', n: 1 })
  expect(await stream.next()).toMatchObject({ operationType: 'insert' })
  await lines.updateOne({ _id: 'b' }, [{ $set: { n: 2 } }])
  expect(await stream.next()).toMatchObject({ operationType: 'replace', fullDocument: { _id: 'b', n: 2 } })
})

test('stepped down, it takes no writes; the driver waits until it is primary again', async () => {
  const client = open((await start()).url)
  const lines = linesOf(client)
  await lines.insertOne({ _id: 'a' })
  await client.db('admin').command({ replSetStepDown: 1, force: true })
  await lines.insertOne({ _id: 'b' })
  expect(await lines.countDocuments()).toBe(2)
})

test('a fail point leaves a write concern unmet, with the value in the answer', async () => {
  const client = open((await start()).url)
  const lines = linesOf(client)
  await client.db('admin').command({
    configureFailPoint: 'failCommand',
    mode: { times: 1 },
    data: { failCommands: ['findAndModify'], writeConcernError: { code: 11602, errmsg: 'operation was interrupted' } },
  })
  const write = lines.findOneAndUpdate({ _id: 'a' }, [{ $set: { n: 1 } }], { upsert: true, returnDocument: 'after' })
  await expect(write).rejects.toMatchObject({ code: 11602, result: { value: { _id: 'a', n: 1 } } })
})

test('its clock is moved', async () => {
  const standIn = await start()
  const lines = linesOf(open(standIn.url))
  await lines.insertOne({ _id: 'a' })
  const now = async (): Promise<number> =>
    ((await lines.aggregate([{ $project: { now: '$$NOW' } }]).next()) as unknown as { now: Date }).now.getTime()
  expect(Math.abs((await now()) - Date.now())).toBeLessThan(60_000)
  standIn.moveClock(3_600_000)
  expect((await now()) - Date.now()).toBeGreaterThan(3_000_000)
})
