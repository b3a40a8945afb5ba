/**
 * Where a real mongod is looked for, what a run without one says, and, where there is one, that the harness does to its
 * servers what it says.
 */
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MongoClient } from 'mongodb'
import { afterEach, describe, expect, onTestFinished, type TestContext, test, vi } from 'vitest'
import { repositoryFiles } from '../tidy.ts'
import { findOwnMongodb, MongodbServer, programsOf } from './mongodb.ts'
import { MongodbSet } from './mongodb-set.ts'
import { Missing } from './programs.ts'
import { describeServer, present } from './suite.ts'

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'holdfast-find-'))
  chmodSync(made, 0o755)
  onTestFinished(() => rmSync(made, { recursive: true }))
  return made
}

function program(path: string, text = '#!/bin/sh\necho db version v7.0.14\n'): string {
  mkdirSync(join(path, '..'), { recursive: true })
  writeFileSync(path, text)
  chmodSync(path, 0o755)
  return path
}

describe('a mongod is looked for', () => {
  test('in PATH, then among what mongodb-memory-server has fetched, newest first', () => {
    const home = folder()
    const cache = join(home, '.cache', 'mongodb-binaries')
    const old = program(join(cache, 'mongod-x64-debian-5.0.34'))
    const flat = program(join(cache, 'mongod-x64-debian-7.0.14'))
    const older = program(join(cache, '4.4.29', 'mongod'))
    const installed = program(join(home, 'bin', 'mongod'))
    writeFileSync(join(cache, 'mongod-x64-debian-8.0.0.tgz'), '')
    const env = { HOME: home, PATH: `${join(home, 'none')}:${join(home, 'bin')}` }
    expect(programsOf(env)).toEqual([installed, flat, old, older])
  })

  test('by name: one that does not run fails, and is no skip', async () => {
    const broken = program(join(folder(), 'mongod'), '#!/bin/sh\nexit 1\n')
    await expect(findOwnMongodb({ HOLDFAST_TEST_MONGOD: broken })).rejects.toThrow('--version')
  })

  test('a run without one says what to do', async () => {
    const missing = await findOwnMongodb({ HOME: folder(), PATH: '' })
    expect(missing).toBeInstanceOf(Missing)
    const { reason } = missing as Missing
    for (const way of ['PATH', 'HOLDFAST_TEST_MONGOD', 'HOLDFAST_TEST_MONGODB_URL', 'HOLDFAST_TEST_MONGOD_DOWNLOAD'])
      expect(reason).toContain(way)
  })
})

describe('a missing server, under CI', () => {
  afterEach(() => vi.unstubAllEnvs())

  const skips = (missing: Missing): string => {
    const skipped = new Error('skipped')
    const context = {
      skip: () => {
        throw skipped
      },
    } as unknown as TestContext
    try {
      present(missing, context)
      return 'was there'
    } catch (error) {
      return error === skipped ? 'skipped' : 'failed'
    }
  }

  test('fails, but for a real MongoDB; elsewhere it is skipped', () => {
    vi.stubEnv('CI', 'true')
    expect(skips(new Missing('no server'))).toBe('failed')
    expect(skips(new Missing('no server', { skipsUnderCi: true }))).toBe('skipped')
    vi.stubEnv('CI', '')
    expect(skips(new Missing('no server'))).toBe('skipped')
  })

  test('no other server is excepted', () => {
    const excepted = repositoryFiles('test')
      .filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts'))
      .filter((path) => readFileSync(path, 'utf8').includes('skipsUnderCi: true'))
    expect(excepted).toEqual(['test/servers/mongodb.ts'])
  })
})

await describeServer('a MongoDB of our own', findOwnMongodb, (source) => {
  test('is killed, and has what it confirmed when it is started again', async () => {
    await using server = await MongodbServer.start(source)
    await using client = new MongoClient(server.url)
    const things = client.db('test').collection<{ _id: string }>('things')
    await things.insertOne({ _id: 'kept' }, { writeConcern: { w: 1, journal: true } })
    await server.process?.kill()
    await server.process?.start()
    expect(await things.findOne({ _id: 'kept' })).toEqual({ _id: 'kept' })
  })

  test('frozen, it answers nothing until it is resumed', async () => {
    await using server = await MongodbServer.start(source)
    server.process?.pause()
    await expect(server.command({ ping: 1 })).rejects.toThrow()
    server.process?.resume()
    expect(await server.command({ ping: 1 })).toMatchObject({ ok: 1 })
  })

  test('a set of one tells of changes', async () => {
    await using set = await MongodbSet.start(source.program, 1)
    await using client = new MongoClient(set.url)
    const things = client.db('test').collection<{ _id: string }>('things')
    await things.insertOne({ _id: 'before' })
    await using stream = things.watch()
    expect(await stream.tryNext()).toBeNull()
    await things.insertOne({ _id: 'told' })
    expect(await stream.next()).toMatchObject({ operationType: 'insert', documentKey: { _id: 'told' } })
  })

  test('a set of three elects another primary when one is killed or steps down, and all follow in the end', async () => {
    await using set = await MongodbSet.start(source.program)
    const first = await set.primary()
    await first.process?.kill()
    expect(await set.primaryWithout(first)).not.toBe(first)
    await set.heal()
    const second = await set.stepDown()
    expect(await set.primaryWithout(second)).not.toBe(second)
    await set.heal()
  }, 180_000)
})
