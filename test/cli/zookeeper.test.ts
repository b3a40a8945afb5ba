/** The command line on ZooKeeper: run across processes, look, evict, and what doctor says of a server. */
import { expect, test } from 'vitest'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { commandCases } from './server-cases.ts'

await describeServer('holdfast on ZooKeeper', findOwnZooKeeper, (source) => {
  const inSuite = commandCases('zookeeper', () => ZooKeeperServer.start(source))

  test('doctor finds the server, its version and its limits', async () => {
    const { url, world } = inSuite()
    const found = await world.doctor(url)
    expect(found.get('version')?.finding).toMatch(/^ZooKeeper 3\.\d+\.\d+/)
    expect(found.get('ensemble')).toMatchObject({ status: 'warn', finding: 'standalone' })
    expect([...found.values()].filter(({ status }) => status === 'fail')).toEqual([])
  })
})
