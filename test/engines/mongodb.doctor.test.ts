/** What `holdfast doctor` finds on MongoDB: on the stand-in, set up and made to refuse in one way after the other. */
import { MongoClient } from 'mongodb'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Finding } from '../../src/core/engine.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { newClaim } from '../claims.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'

let server: StandIn
let client: MongoClient

async function start(replicaSet: boolean): Promise<void> {
  server = await StandIn.start({ replicaSet })
  client = new MongoClient(server.url)
}

beforeEach(() => start(true))

afterEach(async () => {
  await client.close()
  await server.close()
})

async function found(name: string): Promise<Finding | undefined> {
  const findings = await mongodb({ client }).diagnose()
  return findings.find((finding) => finding.name === name)
}

async function refuse(command: string, errorCode = 13): Promise<void> {
  const data = { failCommands: [command], errorCode }
  await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data })
}

describe('the doctor, on a stand-in, says', () => {
  test('of a set with fewer than three members what its loss means', async () => {
    expect(await found('deployment')).toMatchObject({ status: 'warn', todo: expect.stringContaining('majority') })
  })

  test('of a stand-alone server that waiters poll there', async () => {
    await client.close()
    await server.close()
    await start(false)
    expect(await found('deployment')).toMatchObject({ status: 'warn', finding: 'a stand-alone server' })
    expect(await found('waking')).toMatchObject({ status: 'warn', todo: expect.stringContaining('waiters poll') })
    expect(await found('durability')).toMatchObject({ status: 'ok' })
  })

  test('whether a majority has its writes in its journals', async () => {
    expect(await found('durability')).toMatchObject({ status: 'ok', finding: expect.stringContaining('journals') })
    await client.db('admin').command({ replSetReconfig: { writeConcernMajorityJournalDefault: false } })
    expect(await found('durability')).toMatchObject({ status: 'warn', todo: expect.stringContaining('power cut') })
    await refuse('replSetGetConfig')
    const notLookedAt = { status: 'ok', finding: expect.stringContaining('may not be looked at') }
    expect(await found('durability')).toMatchObject(notLookedAt)
  })

  test('how far the clock of the server is from ours', async () => {
    server.moveClock(3_600_000)
    const skew = /(\d+) ms ahead of/.exec((await found('clock skew'))?.finding ?? '')
    expect(Number(skew?.[1]) / 3_600_000).toBeCloseTo(1, 2)
  })

  test('which right is missing, and what to grant', async () => {
    await refuse('findAndModify')
    expect(await found('rights')).toMatchObject({ status: 'fail', todo: expect.stringContaining('changeStream') })
    await refuse('aggregate')
    expect(await found('waking')).toMatchObject({ status: 'warn', todo: expect.stringContaining('grant') })
    await refuse('listIndexes')
    expect(await found('clearing away')).toMatchObject({ status: 'warn', todo: expect.stringContaining('createIndex') })
  })

  test('whether what is not used any more is cleared away', async () => {
    expect(await found('clearing away')).toMatchObject({ status: 'ok', finding: expect.stringContaining('yet') })
    await mongodb({ client, listen: false }).enter([newClaim('used')])
    expect(await found('clearing away')).toMatchObject({ status: 'warn', todo: expect.stringContaining('createIndex') })
    await client.db().collection('holdfast').createIndex({ remove_at: 1 }, { expireAfterSeconds: 0 })
    expect(await found('clearing away')).toMatchObject({ status: 'ok' })
  })

  test('that a server which does not know update pipelines is too old, in the first call as well', async () => {
    await refuse('findAndModify', 9)
    await expect(mongodb({ client, listen: false }).enter([newClaim('old')])).rejects.toThrow('MongoDB 5.0 or newer')
    await expect(mongodb({ client }).diagnose()).rejects.toThrow('MongoDB 5.0 or newer')
  })
})
