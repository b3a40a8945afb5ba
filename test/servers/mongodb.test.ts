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
import { findMongodb, findOwnMongodb, MongodbServer, programsOf } from './mongodb.ts'
import { MongodbSet } from './mongodb-set.ts'
import { StandIn } from './mongodb-stand-in/stand-in.ts'
import { freePort } from './ports.ts'
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

  test('by name, before all that is installed; one that does not run leads to the next', async () => {
    const home = folder()
    const named = program(join(home, 'named', 'mongod'))
    const broken = program(join(home, 'bin', 'mongod'), '#!/bin/sh\nexit 1\n')
    const env = { HOME: home, PATH: join(broken, '..') }
    const found = await findOwnMongodb({ ...env, HOLDFAST_TEST_MONGOD: named })
    expect(found).toMatchObject({ program: { path: named, version: expect.stringContaining('v7.0.14') } })
    expect(await findOwnMongodb(env)).toMatchObject({ reason: expect.stringContaining(broken) })
    const cached = program(join(home, '.cache', 'mongodb-binaries', 'mongod-x64-debian-7.0.14'))
    expect(await findOwnMongodb(env)).toMatchObject({ program: { path: cached } })
  })

  test('as a deployment, before any program, which is then not looked for', async () => {
    const env = { HOLDFAST_TEST_MONGODB_URL: 'mongodb://elsewhere/', HOLDFAST_TEST_MONGOD: '/not/there' }
    expect(await findMongodb(env)).toEqual({ url: 'mongodb://elsewhere/' })
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

describe('a mongod that is to be fetched', () => {
  afterEach(() => vi.unstubAllEnvs())

  // In the place of npm, which installs what fetches one: as mongodb-memory-server answers, without a network.
  const INSTALLS = `#!/bin/sh
folder="$3/node_modules/mongodb-memory-server-core"
mkdir -p "$folder"
cat > "$folder/index.js" <<'END'
const { writeFileSync } = require('node:fs')
exports.MongoBinary = {
  getPath: async ({ version, downloadDir }) => {
    const path = downloadDir + '/mongod-' + version
    writeFileSync(path, '#!/bin/sh\\necho db version v' + version + '\\n', { mode: 0o755 })
    return path
  },
}
END
`

  async function found(npm: string): ReturnType<typeof findOwnMongodb> {
    const home = folder()
    const bin = join(program(join(home, 'bin', 'npm'), npm), '..')
    vi.stubEnv('PATH', `${bin}:/usr/bin:/bin`)
    vi.stubEnv('XDG_CACHE_HOME', home)
    return await findOwnMongodb({ HOME: home, PATH: bin, HOLDFAST_TEST_MONGOD_DOWNLOAD: '7.0.14' })
  }

  test('is fetched in the version that was asked for, where no other is found', async () => {
    expect(await found(INSTALLS)).toMatchObject({ program: { version: expect.stringContaining('v7.0.14') } })
  })

  test('and cannot be, fails: it was asked for, and is no skip', async () => {
    await expect(found('#!/bin/sh\nexit 1\n')).rejects.toThrow('npm')
  })
})

describe('a deployment at a URL', () => {
  test('is used and left as it is: it has no process that a test could kill', async () => {
    await using standIn = await StandIn.start({ replicaSet: true })
    {
      await using server = await MongodbServer.start({ url: standIn.url })
      expect(server).toMatchObject({ url: standIn.url, host: '127.0.0.1', port: standIn.port, process: undefined })
      expect(await server.command({ ping: 1 })).toMatchObject({ ok: 1 })
    }
    await using client = new MongoClient(standIn.url)
    expect(await client.db().command({ ping: 1 })).toMatchObject({ ok: 1 })
  })

  test('that does not answer fails, and is no skip', async () => {
    const url = `mongodb://127.0.0.1:${await freePort()}/`
    await expect(MongodbServer.start({ url })).rejects.toThrow('ECONNREFUSED')
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
