/**
 * etcd conforms: one server, and processes that are killed, stopped and cut off from it.
 *
 * Its traits say that entries of one ttl and one process live and die together. While the process lives, each ends by
 * its own ttl all the same; so it is judged by that. What a line shows of its ttl is that of the lease, in whole
 * seconds.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { EtcdServer, findEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { etcdPlace, etcdWorld } from './etcd-world.ts'

const ASKS_FOR_THE_TTL = 'looking'
/** A ttl is 2 s at least, so whatever waits for its end waits long. */
const atOnce = 16

await describeServer('etcd', findEtcd, (source) => {
  const starting = EtcdServer.start(source)
  afterAll(async () => (await starting)[Symbol.asyncDispose]())

  const world = async (options: { readonly asEntries: boolean }): Promise<World> =>
    etcdWorld({ ...etcdPlace(await starting), ...options })

  const runner = { describe, it, afterAll }
  conformance(runner, 'etcd', () => world({ asEntries: true }), {
    atOnce,
    only: (_, property) => property !== ASKS_FOR_THE_TTL,
  })
  conformance(runner, 'etcd', () => world({ asEntries: false }), {
    atOnce,
    only: (_, property) => property === ASKS_FOR_THE_TTL,
  })
})
