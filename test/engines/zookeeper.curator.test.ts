/** Curator's InterProcessMutex on the same node: it excludes us, and we it, in order, both ways. */
import { afterAll, beforeAll, beforeEach, expect, type TestContext, test, vi } from 'vitest'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { Curator } from '../servers/curator.ts'
import type { Missing } from '../servers/programs.ts'
import { describeServer, present } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'

const LIMIT = { timeout: 60_000, interval: 10 }

await describeServer('Curator on the same node', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer
  let locks: Locks
  let curator: Curator | Missing
  let key: string
  let keys = 0

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
    locks = createLocks(await openZooKeeper(`${server.url}?layout=curator`), { ttl: '30s' })
    curator = await Curator.find(source.program)
  }, 300_000)

  beforeEach(() => {
    keys += 1
    key = `order:${keys}`
  })

  afterAll(async () => {
    await locks.close()
    await server[Symbol.asyncDispose]()
  })

  /** A program in Java with `lock` on our key. */
  async function inCurator(context: TestContext, program: string): Promise<string> {
    const head = [
      'import java.util.concurrent.TimeUnit;',
      'import org.apache.curator.framework.CuratorFrameworkFactory;',
      'import org.apache.curator.framework.recipes.locks.InterProcessMutex;',
      'import org.apache.curator.retry.RetryOneTime;',
      `client = CuratorFrameworkFactory.newClient("127.0.0.1:${server.port}", new RetryOneTime(100));`,
      'client.start();',
      `path = "/holdfast/${key}";`,
      'lock = new InterProcessMutex(client, path);',
      '',
    ].join('\n')
    return await present(curator, context).run(`${head}${program}\nclient.close();\n`)
  }

  const inLine = (count: number): Promise<void> =>
    vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)

  test('it does not get what we hold, waits for it, and has it when we have released', async (context) => {
    const lease = await locks.mutex(key).acquire()
    expect(await inCurator(context, 'print(lock.acquire(100, TimeUnit.MILLISECONDS));')).toBe('false')
    const theirs = inCurator(context, 'print(lock.acquire(60, TimeUnit.SECONDS));\nlock.release();')
    await inLine(2)
    expect(await lease.release()).toBe(true)
    expect(await theirs).toBe('true')
  })

  test('we do not get what it holds, wait for it, and have it when it has released', async (context) => {
    // It holds until one of ours waits behind it.
    const theirs = inCurator(
      context,
      [
        'lock.acquire();',
        'while (lock.getParticipantNodes().size() < 2) Thread.sleep(20);',
        'print(lock.getParticipantNodes().size());',
        'lock.release();',
      ].join('\n'),
    )
    await inLine(1)
    expect((await locks.inspect(key)).entries[0]).toMatchObject({ state: 'held', weight: 1, limit: 1 })
    const lease = await locks.mutex(key).acquire()
    expect(lease.held).toBe(true)
    expect(await theirs).toBe('2')
    expect((await locks.inspect(key)).entries).toHaveLength(1)
    expect(await lease.release()).toBe(true)
  })

  test('both are served in the order in which they came', async (context) => {
    const first = await locks.mutex(key).acquire()
    const theirs = inCurator(context, 'lock.acquire();\nprint("served");\nlock.release();')
    await inLine(2)
    const ours = locks.mutex(key).acquire()
    await inLine(3)
    await first.release()
    const lease = await ours
    // It has released before we were let in.
    expect((await locks.inspect(key)).entries).toHaveLength(1)
    expect(await theirs).toBe('served')
    await lease.release()
  })

  test('in the usual layout, a line in which Curator is refused, with what to do', async (context) => {
    const usual = createLocks(await openZooKeeper(server.url), { ttl: '30s' })
    try {
      const held = await locks.mutex(key).acquire()
      // A Holdfast of either layout sees the other one.
      expect(await usual.mutex(key).tryAcquire()).toBeUndefined()
      const theirs = inCurator(context, 'print(lock.acquire(60, TimeUnit.SECONDS));\nlock.release();')
      await inLine(2)
      await expect(usual.mutex(key).acquire()).rejects.toThrow("is an entry of Curator's")
      await held.release()
      expect(await theirs).toBe('true')
    } finally {
      await usual.close()
    }
  })
})
