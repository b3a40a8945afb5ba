/**
 * What an engine with a server does to the process that it lives in: nothing keeps it alive but what a caller awaits,
 * and that does, to its end. In processes of their own, which run what `npm run build` emits.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import { runProgram } from '../program.ts'
import { EtcdServer, findEtcd } from '../servers/etcd.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

interface TestServer extends AsyncDisposable {
  readonly url: string
  readonly host: string
  readonly port: number
}

function cases(start: () => Promise<TestServer>): void {
  let server: TestServer

  beforeAll(async () => {
    server = await start()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const run = (body: string, url: string = server.url): ReturnType<typeof runProgram> =>
    runProgram(`await connect(${JSON.stringify(url)})`, body)

  describe('a process that awaits', () => {
    test('close() goes on after it, though it still holds', async () => {
      const ended = await run(`
        await locks.mutex('close').acquire()
        await locks.close()
        say('closed')`)
      expect(ended).toEqual({ code: 0, out: 'closed', err: '' })
    })

    test('a wait stays alive until it is over', async () => {
      const ended = await run(`
        await locks.mutex('wait').acquire()
        await locks.mutex('wait').acquire({ wait: '300ms' }).catch((error) => say(error.code))
        await locks.close()`)
      expect(ended).toEqual({ code: 0, out: 'ACQUIRE_TIMEOUT', err: '' })
    })

    test('a call of the engine itself stays alive until it is answered', async () => {
      const ended = await run(`
        say((await locks.engine.inspect('nothing here')).entries.length)
        await locks.close()`)
      expect(ended).toEqual({ code: 0, out: '0', err: '' })
    })
  })

  describe('a process that awaits nothing ends', () => {
    test('though it holds and has closed nothing', async () => {
      const ended = await run(`
        await locks.mutex('held').acquire()
        say('held')`)
      expect(ended).toEqual({ code: 0, out: 'held', err: '' })
    })

    test('though it has never asked for anything', async () => {
      const ended = await run(`say('connected')`)
      expect(ended).toEqual({ code: 0, out: 'connected', err: '' })
    })

    test('though its server is gone, and it goes on trying to connect', async () => {
      await using proxy = await FaultProxy.start(server)
      const url = server.url.replace(/:\d+$/, `:${proxy.port}`)
      await proxy.refuse()
      const ended = await run(`await locks.mutex('gone').tryAcquire().catch((error) => say(error.code))`, url)
      expect(ended).toEqual({ code: 0, out: 'ENGINE', err: '' })
    })
  })
}

await describeServer('on etcd', findEtcd, (source) => {
  cases(() => EtcdServer.start(source))

  test('a process that has closed its locks at the end of its program leaves no lease behind', async () => {
    await using server = await EtcdServer.start(source)
    const ended = await runProgram(
      `await connect(${JSON.stringify(server.url)})`,
      `
      await locks.mutex('lease').acquire()
      await locks.close()`,
    )
    expect(ended).toEqual({ code: 0, out: '', err: '' })
    const client = new EtcdClient({ endpoints: [server] })
    const { kvs } = await client.range({ key: 'holdfast/', end: 'holdfast0', keysOnly: true })
    client.close()
    expect(kvs).toEqual([])
  })
})

await describeServer('on Redis', findRedis, (source) => {
  cases(() => RedisServer.start(source))
})
