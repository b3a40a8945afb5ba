/** Kazoo, the client of ZooKeeper for Python, on the same node: it excludes us, and we it, in order, both ways. */
import { expect, test } from 'vitest'
import { KAZOO, Python } from '../servers/python.ts'
import { describeOtherClient, type OtherClient } from './zookeeper-clients.ts'

/** In Python, with `reader` and `writer` on our key as well. */
const kazoo: OtherClient = {
  name: 'Kazoo',
  query: '',
  find: () => Python.find(KAZOO),
  program: (port, path, lines) =>
    [
      'import time',
      'from kazoo.client import KazooClient',
      `zk = KazooClient(hosts='127.0.0.1:${port}')`,
      'zk.start()',
      `path = '${path}'`,
      "lock, reader, writer = zk.Lock(path, 'kazoo'), zk.ReadLock(path, 'kazoo'), zk.WriteLock(path, 'kazoo')",
      ...lines,
      'zk.stop()',
      '',
    ].join('\n'),
  yes: 'True',
  no: 'False',
  tries: ['print(lock.acquire(blocking=False))'],
  waits: ['print(lock.acquire(timeout=40))', 'lock.release()'],
  // A try of ours does not wait, and is in line for a moment only.
  holdsUntilWaitedFor: [
    'lock.acquire()',
    "while len([name for name in zk.get_children(path) if '-try' not in name]) < 2: time.sleep(0.02)",
    'print(len(lock.contenders()))',
    'lock.release()',
  ],
  entry: { holder: 'kazoo' },
}

await describeOtherClient(kazoo, (node) => {
  test('readers hold together, and a writer of either side alone', async (context) => {
    const rw = node.locks.rw(node.key)
    const reading = await rw.read.acquire()
    expect(
      await node.theirs(context, [
        'print(reader.acquire(timeout=20), writer.acquire(blocking=False))',
        'reader.release()',
      ]),
    ).toBe('True False')
    await reading.release()
    const writing = await rw.write.acquire()
    expect(await node.theirs(context, ['print(reader.acquire(blocking=False))'])).toBe('False')
    await writing.release()
  })
})
