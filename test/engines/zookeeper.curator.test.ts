/** Curator's InterProcessMutex on the same node: it excludes us, and we it, in order, both ways. */
import { expect, test } from 'vitest'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks } from '../../src/index.ts'
import { Curator } from '../servers/curator.ts'
import { describeOtherClient, type OtherClient } from './zookeeper-clients.ts'

/** In Java. */
const curator: OtherClient = {
  name: 'Curator',
  query: '?layout=curator',
  find: (program) => Curator.find(program),
  program: (port, path, lines) =>
    [
      'import java.util.concurrent.TimeUnit;',
      'import org.apache.curator.framework.CuratorFrameworkFactory;',
      'import org.apache.curator.framework.recipes.locks.InterProcessMutex;',
      'import org.apache.curator.retry.RetryOneTime;',
      `client = CuratorFrameworkFactory.newClient("127.0.0.1:${port}", new RetryOneTime(100));`,
      'client.start();',
      `path = "${path}";`,
      'lock = new InterProcessMutex(client, path);',
      ...lines,
      'client.close();',
      '',
    ].join('\n'),
  yes: 'true',
  no: 'false',
  tries: ['print(lock.acquire(100, TimeUnit.MILLISECONDS));'],
  waits: ['print(lock.acquire(60, TimeUnit.SECONDS));', 'lock.release();'],
  // A try of ours does not wait, and is in line for a moment only.
  holdsUntilWaitedFor: [
    'lock.acquire();',
    'waiters() {',
    '  count = 0;',
    '  for (name : client.getChildren().forPath(path)) if (name.indexOf("-try") < 0) count++;',
    '  return count;',
    '}',
    'while (waiters() < 2) Thread.sleep(20);',
    'print(waiters());',
    'lock.release();',
  ],
  entry: {},
}

await describeOtherClient(curator, (node) => {
  test('in the usual layout, a line in which Curator is refused, with what to do', async (context) => {
    const { key, locks } = node
    const usual = createLocks(await openZooKeeper(node.server.url), { ttl: '30s' })
    try {
      const held = await locks.mutex(key).acquire()
      // A Holdfast of either layout sees the other one.
      expect(await usual.mutex(key).tryAcquire()).toBeUndefined()
      const theirs = node.theirs(context, curator.waits)
      await node.inLine(2)
      await expect(usual.mutex(key).acquire()).rejects.toThrow("is an entry of Curator's")
      await held.release()
      expect(await theirs).toBe('true')
    } finally {
      await usual.close()
    }
  })
})
