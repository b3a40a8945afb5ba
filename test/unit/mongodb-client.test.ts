/** What the client of MongoDB makes of URLs and of errors, without any server. */
import { describe, expect, test } from 'vitest'
import { splitMongodbUrl } from '../../src/clients/mongodb/connect.ts'
import { checkMongodbClient } from '../../src/clients/mongodb/detect.ts'
import { asEngineError, isUnconfirmed } from '../../src/clients/mongodb/errors.ts'
import { NoAnswer, NotSent } from '../../src/clients/shared/driver-errors.ts'
import { systemClock } from '../../src/core/clock.ts'
import { openMongodb } from '../../src/engines/mongodb/index.ts'
import { LineCalls } from '../../src/engines/mongodb/line-calls.ts'
import { checkCollectionName } from '../../src/engines/mongodb/names.ts'

const serverError = (code: number, message: string, more: object = {}): Error =>
  Object.assign(new Error(message), { name: 'MongoServerError', code, ...more })

describe('a URL', () => {
  test('has a collection of ours among the options of the driver', () => {
    const url = 'mongodb://u:p@a:1,b/shop?replicaSet=rs&collection=my%20locks&w=1'
    expect(splitMongodbUrl(url)).toEqual({
      url: 'mongodb://u:p@a:1,b/shop?replicaSet=rs&w=1',
      options: { collection: 'my locks' },
    })
    expect(splitMongodbUrl('mongodb+srv://cluster.example?collection=c')).toEqual({
      url: 'mongodb+srv://cluster.example',
      options: { collection: 'c' },
    })
    expect(splitMongodbUrl('mongodb://a,b?replicaSet=rs').url).toBe('mongodb://a,b/?replicaSet=rs')
  })

  test('that the driver cannot read is refused without its password', async () => {
    for (const url of ['mongodb://app:hunter2@/shop', 'mongodb://app:hun@ter2@a:99999/shop', 'mongodb://a:x:hunter2']) {
      const error = await openMongodb(url).catch((reason: unknown) => reason)
      expect(error).toMatchObject({ code: 'ENGINE', outcome: 'not-applied', transient: false })
      expect(JSON.stringify([String(error), (error as Error).cause])).not.toContain('ter2')
    }
  })

  test('names a collection that MongoDB takes', () => {
    expect(checkCollectionName('app.locks')).toBe('app.locks')
    for (const name of ['', 'a$b', 'system.users', '.a', 'a.', 'a\0', 7])
      expect(() => checkCollectionName(name)).toThrow(/name of a collection/)
  })
})

test('a client is told by its methods, and a Db in its place is named', () => {
  const client = { db() {}, startSession() {}, on() {}, close() {} }
  expect(checkMongodbClient(client)).toBe(client)
  expect(() => checkMongodbClient({ collection() {}, command() {} })).toThrow(/this is a Db/)
  expect(() => checkMongodbClient(undefined)).toThrow(/MongoClient/)
})

describe('an error', () => {
  test('of a write that no majority has confirmed is unknown, and the entry in it is not believed', () => {
    const held = { value: { _id: 'k', entries: [{ holder: 'secret holder' }] } }
    const error = serverError(11602, 'operation was interrupted', { name: 'MongoWriteConcernError', result: held })
    expect(isUnconfirmed(error)).toBe(true)
    const translated = asEngineError('enter', error)
    expect(translated).toMatchObject({ outcome: 'unknown', transient: true })
    expect(translated.message).toContain('not confirmed by a majority')
    expect(translated.cause).not.toHaveProperty('result')
    // A code that would be a refusal from the server itself is none here.
    const odd = serverError(13, 'not authorized', { name: 'MongoWriteConcernError' })
    expect(asEngineError('enter', odd).outcome).toBe('unknown')
    const bulk = Object.assign(new Error('w'), { result: { getWriteConcernError: () => ({ code: 64 }) } })
    expect(asEngineError('enter', bulk).outcome).toBe('unknown')
  })

  test('of the network, of our own limit or of a limit of the server is unknown', () => {
    for (const error of [
      Object.assign(new Error('connection closed'), { name: 'MongoNetworkError' }),
      Object.assign(new Error('no server'), { name: 'MongoServerSelectionError' }),
      new NoAnswer(),
      serverError(50, 'operation exceeded time limit'),
      serverError(10107, 'not primary'),
    ])
      expect(asEngineError('enter', error)).toMatchObject({ outcome: 'unknown', transient: true })
  })

  test('of a call for which no connection was used is not applied', () => {
    const error = new NotSent(Object.assign(new Error('no server'), { name: 'MongoServerSelectionError' }))
    expect(asEngineError('enter', error)).toMatchObject({ outcome: 'not-applied', transient: true })
  })

  test('of rights is lasting, says what is needed, and does not repeat the command', () => {
    const command = '{ findAndModify: "holdfast", query: { _id: "key" }, update: [{ holder: "secret holder" }] }'
    const message = `not authorized on shop to execute command ${command}`
    const translated = asEngineError('enter', serverError(13, message, { errorResponse: { errmsg: message } }))
    expect(translated).toMatchObject({ outcome: 'not-applied', transient: false })
    expect(translated.message).toContain('createIndex')
    expect(JSON.stringify([translated.message, String(translated.cause), translated.cause])).not.toContain('secret')
  })

  test('of a server without update pipelines says which one is needed', () => {
    const translated = asEngineError('enter', serverError(40324, "Unrecognized pipeline stage name: '$replaceWith'"))
    expect(translated).toMatchObject({ outcome: 'not-applied', transient: false })
    expect(translated.message).toContain('MongoDB 5.0 or newer')
  })

  test('of two that make one document at the same time is not applied, and may be tried again', () => {
    expect(asEngineError('enter', serverError(11000, 'E11000 duplicate key'))).toMatchObject({
      outcome: 'not-applied',
      transient: true,
    })
  })
})

test('leaves of which one failed are unknown as a whole, for the others were done', async () => {
  const failed = new Map([[1, serverError(121, 'Document failed validation')]])
  const collection = {
    inSession: <Answer>(work: (session: object) => Answer): Answer => work({}),
    changeMany: () => Promise.resolve({ matched: 0, failed }),
  }
  const calls = new LineCalls(collection as never, systemClock)
  const leaves = ['a', 'b'].map((key) => ({ key, id: key, pipeline: [], upsert: false }))
  await expect(calls.leaveMany(leaves, 1000)).rejects.toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
})

test('of many lines, one that another process makes at the same moment is asked for again, and the others are not', async () => {
  const failed = new Map([[1, serverError(11000, 'E11000 duplicate key')]])
  const lineOf = (_id: string): object => ({ _id, format: 1, entries: [], evicted: [] })
  const again: unknown[] = []
  const collection = {
    inSession: <Answer>(work: (session: object) => Answer): Answer => work({}),
    changeMany: () => Promise.resolve({ matched: 0, failed }),
    read: () => Promise.resolve(['a', 'b', 'c', 'd'].map(lineOf)),
    change: ({ filter }: { filter: { _id: string } }) => {
      again.push(filter._id)
      return Promise.resolve({ ...lineOf(filter._id), held: 1 })
    },
  }
  const calls = new LineCalls(collection as never, systemClock)
  const changes = ['a', 'b', 'c', 'd'].map((key) => ({ key, pipeline: [], upsert: true }))
  const answers = await calls.change('enter', changes, 1000)
  expect(answers[1]).toMatchObject({ _id: 'b', held: 1 })
  expect(again).toEqual(['b'])
})
