/** Kazoo, the client of ZooKeeper for Python, on the same node: it excludes us, and we it, in order, both ways. */
import { afterAll, beforeAll, beforeEach, expect, type TestContext, test, vi } from 'vitest'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import type { Missing } from '../servers/programs.ts'
import { KAZOO, Python } from '../servers/python.ts'
import { describeServer, present } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'

const LIMIT = { timeout: 45_000, interval: 10 }

await describeServer('Kazoo on the same node', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer
  let locks: Locks
  let python: Python | Missing
  let key: string
  let keys = 0

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
    locks = createLocks(await openZooKeeper(server.url), { ttl: '30s' })
    python = await Python.find(KAZOO)
  })

  beforeEach(() => {
    keys += 1
    key = `order:${keys}`
  })

  afterAll(async () => {
    await locks.close()
    await server[Symbol.asyncDispose]()
  })

  /** A program in Python with `lock`, `reader` and `writer` on our key. */
  async function inKazoo(context: TestContext, program: string): Promise<string> {
    const head = [
      'import time',
      'from kazoo.client import KazooClient',
      `zk = KazooClient(hosts='127.0.0.1:${server.port}')`,
      'zk.start()',
      `path = '/holdfast/${key}'`,
      "lock, reader, writer = zk.Lock(path, 'kazoo'), zk.ReadLock(path, 'kazoo'), zk.WriteLock(path, 'kazoo')",
      '',
    ].join('\n')
    return await present(python, context).run(`${head}${program}\nzk.stop()\n`)
  }

  const inLine = (count: number): Promise<void> =>
    vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)

  test('it does not get what we hold, waits for it, and has it when we have released', async (context) => {
    const lease = await locks.mutex(key).acquire()
    expect(await inKazoo(context, 'print(lock.acquire(blocking=False))')).toBe('False')
    const theirs = inKazoo(context, 'print(lock.acquire(timeout=40))\nlock.release()')
    await inLine(2)
    expect(await lease.release()).toBe(true)
    expect(await theirs).toBe('True')
  })

  test('we do not get what it holds, wait for it, and have it when it has released', async (context) => {
    // It holds until one of ours waits behind it. A try does not wait, and is in line for a moment only.
    const theirs = inKazoo(
      context,
      [
        'lock.acquire()',
        "while len([name for name in zk.get_children(path) if '-try' not in name]) < 2: time.sleep(0.02)",
        'print(len(lock.contenders()))',
        'lock.release()',
      ].join('\n'),
    )
    await inLine(1)
    expect((await locks.inspect(key)).entries[0]).toMatchObject({ holder: 'kazoo', state: 'held', weight: 1, limit: 1 })
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
    const lease = await locks.mutex(key).acquire()
    expect(lease.held).toBe(true)
    expect(await theirs).toBe('2')
    expect(await lease.release()).toBe(true)
  })

  test('both are served in the order in which they came', async (context) => {
    const first = await locks.mutex(key).acquire()
    const served: string[] = []
    const theirs = inKazoo(context, 'lock.acquire()\nprint(time.time())\nlock.release()').then(() =>
      served.push('kazoo'),
    )
    await inLine(2)
    const ours = locks.mutex(key).acquire()
    await inLine(3)
    await first.release()
    const lease = await ours
    // It has released before we were let in.
    expect((await locks.inspect(key)).entries).toHaveLength(1)
    await lease.release()
    await theirs
    expect(served).toEqual(['kazoo'])
  })

  test('readers hold together, and a writer of either side alone', async (context) => {
    const reading = await locks.rw(key).read.acquire()
    expect(
      await inKazoo(context, 'print(reader.acquire(timeout=20), writer.acquire(blocking=False))\nreader.release()'),
    ).toBe('True False')
    await reading.release()
    const writing = await locks.rw(key).write.acquire()
    expect(await inKazoo(context, 'print(reader.acquire(blocking=False))')).toBe('False')
    await writing.release()
  })
})
