/**
 * Whom the etcd engine is compared with: the protocol by hand and the recipe of etcd's own client, on the same
 * transport, the server's Lock service, and etcd3.
 */
import { Etcd3 } from 'etcd3'
import { EtcdClient } from '../src/clients/etcd/client.ts'
import { readText } from '../src/clients/etcd/messages.ts'
import { ProtoReader, ProtoWriter } from '../src/clients/etcd/proto.ts'
import type { Peer } from './ours.ts'

const TTL_SECONDS = 600
/**
 * etcd3 leaves a timer of one ttl behind for many a lease that it has revoked, and it keeps the process alive: not for
 * ten minutes.
 */
const ETCD3_TTL_SECONDS = 10

export async function peers(port: number): Promise<{ readonly peers: readonly Peer[]; close(): void }> {
  const client = new EtcdClient({ endpoints: [{ host: '127.0.0.1', port }] })
  const { lease } = await client.grant(TTL_SECONDS)
  const etcd3 = new Etcd3({ hosts: `127.0.0.1:${port}` })
  const byHand: Peer = {
    name: 'hand-written: create if absent, delete if mine',
    async pair(caller) {
      const key = `by-hand/${caller}`
      const absent = { key, target: 'create', result: 'equal', value: 0n } as const
      const put = { key, value: 'x', lease }
      const { succeeded, header } = await client.txn({
        compare: [absent],
        success: [{ put }],
        failure: [{ range: { key } }],
      })
      if (!succeeded) throw new Error('another caller has it')
      // A holder that has lost its lease must not delete what the next holder has put there.
      const mine = { key, target: 'create', result: 'equal', value: header.revision } as const
      await client.txn({ compare: [mine], success: [{ delete: { key } }] })
    },
  }
  const recipe: Peer = {
    name: "the recipe of etcd's own client, without waiting",
    async pair(caller) {
      const key = `recipe/${caller}/${lease.toString(16)}`
      const absent = { key, target: 'create', result: 'equal', value: 0n } as const
      const put = { key, value: '', lease }
      const owner = { key: `recipe/${caller}/`, end: `recipe/${caller}0`, oldestFirst: true, limit: 1 }
      const success = [{ put }, { range: owner }]
      const { responses } = await client.txn({
        compare: [absent],
        success,
        failure: [{ range: { key } }, { range: owner }],
      })
      if (responses[1]?.range?.kvs[0]?.key !== key) throw new Error('another caller has it')
      await client.delete({ key })
    },
  }
  const service: Peer = {
    name: "the server's Lock service",
    async pair(caller) {
      const question = new ProtoWriter().bytes(1, `service/${caller}`).number(2, lease)
      const key = readText(new ProtoReader(await client.call('/v3lockpb.Lock/Lock', question)), 2)
      await client.call('/v3lockpb.Lock/Unlock', new ProtoWriter().bytes(1, key))
    },
  }
  const library: Peer = {
    name: 'etcd3 (a lease for each lock, no waiting)',
    async pair(caller) {
      const lock = etcd3.lock(`etcd3/${caller}`).ttl(ETCD3_TTL_SECONDS)
      await lock.acquire()
      await lock.release()
    },
  }
  const close = (): void => {
    client.close()
    etcd3.close()
  }
  return { peers: [byHand, recipe, service, library], close }
}
