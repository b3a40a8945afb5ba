/** The command line on etcd: run across processes, look, evict, lead, and what doctor says of a cluster. */
import { expect, test } from 'vitest'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { commandCases } from './server-cases.ts'

await describeServer('holdfast on etcd', findOwnEtcd, (source) => {
  const inSuite = commandCases('etcd', () => EtcdServer.start(source))

  test('doctor finds the server, its version and its smallest ttl', async () => {
    const { url, world } = inSuite()
    const found = await world.doctor(url)
    expect(found.get('version')?.finding).toMatch(/^etcd 3\.\d+\.\d+/)
    expect(found.get('smallest ttl')).toMatchObject({ status: 'ok', finding: '2s' })
    expect([...found.values()].filter(({ status }) => status === 'fail')).toEqual([])
    expect(await world.run('doctor', '--url', url)).toMatchObject({ exit: 0 })
  })
})
