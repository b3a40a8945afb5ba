/**
 * What it takes at least to tell another process something, on each server: a bare message. Hand-offs are compared with
 * it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { type Collection, MongoClient } from 'mongodb'
import pg from 'pg'
import { EtcdClient } from '../src/clients/etcd/client.ts'
import { parseEtcdUrl } from '../src/clients/etcd/url.ts'
import { WatchStream } from '../src/clients/etcd/watch-stream.ts'
import type { NodeEvent } from '../src/clients/zookeeper/messages.ts'
import { ZooKeeperSession } from '../src/clients/zookeeper/session.ts'
import { parseZooKeeperUrl } from '../src/clients/zookeeper/url.ts'
import { systemClock } from '../src/core/clock.ts'

export interface Teller {
  /** What has to be done before each, and is not timed. */
  prepare?(): Promise<unknown>
  /** Send one. */
  tell(): Promise<unknown>
  close(): Promise<unknown>
}

interface Kind {
  readonly name: string
  teller(url: string): Promise<Teller>
  /** Resolves when messages arrive. */
  listen(url: string, heard: () => void): Promise<unknown>
}

const CHANNEL = 'bare'

const KINDS: Readonly<Record<string, Kind>> = {
  redis: {
    name: 'bare published message',
    async teller(url) {
      const client = new Redis(url)
      return { tell: () => client.publish(CHANNEL, 'x'), close: async () => client.disconnect() }
    },
    async listen(url, heard) {
      const client = new Redis(url)
      client.on('message', heard)
      await client.subscribe(CHANNEL)
    },
  },
  postgres: {
    name: 'bare NOTIFY',
    async teller(url) {
      const client = new pg.Client(url)
      await client.connect()
      return { tell: () => client.query(`NOTIFY ${CHANNEL}`), close: () => client.end() }
    },
    async listen(url, heard) {
      const client = new pg.Client(url)
      await client.connect()
      client.on('notification', heard)
      await client.query(`LISTEN ${CHANNEL}`)
    },
  },
  etcd: {
    name: 'bare watch event',
    async teller(url) {
      const client = new EtcdClient({ endpoints: parseEtcdUrl(url).hosts })
      return {
        prepare: () => client.txn({ success: [{ put: { key: CHANNEL, value: 'x', lease: 0n } }] }),
        tell: () => client.txn({ success: [{ delete: { key: CHANNEL } }] }),
        close: async () => client.close(),
      }
    },
    async listen(url, heard) {
      const watches = new WatchStream(new EtcdClient({ endpoints: parseEtcdUrl(url).hosts }), systemClock)
      await new Promise<void>((created, refused) => {
        watches.add(
          { key: CHANNEL, fromRevision: 0n, deletesOnly: true },
          { changed: heard, created: () => created(), compacted: () => undefined, refused },
        )
      })
    },
  },
  zookeeper: {
    name: 'bare watch event',
    async teller(url) {
      const session = bareSession(url, () => undefined)
      return {
        // The listener has to watch the node that was created.
        prepare: async () => {
          await session.create({ path: BARE_NODE, data: Buffer.alloc(0), mode: 'ephemeral', acl: 'open' })
          await sleep(20)
        },
        tell: () => session.delete(BARE_NODE),
        close: () => session.close(),
      }
    },
    async listen(url, heard) {
      const session = bareSession(url, ({ kind }) => {
        if (kind === 'deleted') heard()
        session.exists(BARE_NODE, { watch: true }).catch(() => undefined)
      })
      await session.exists(BARE_NODE, { watch: true })
    },
  },
  mongodb: {
    name: 'bare change stream event',
    async teller(url) {
      const client = new MongoClient(url, { writeConcern: { w: 'majority' } })
      const bare = bareCollection(client)
      return { tell: () => bare.insertOne({}), close: () => client.close() }
    },
    async listen(url, heard) {
      const stream = bareCollection(new MongoClient(url)).watch([{ $match: { operationType: 'insert' } }])
      // The stream is open when it has answered once.
      await stream.tryNext()
      const hear = async (): Promise<never> => {
        for (;;) {
          await stream.next()
          heard()
        }
      }
      hear().catch(() => undefined)
    },
  },
}

const bareCollection = (client: MongoClient): Collection => client.db('bench').collection(CHANNEL)

const BARE_NODE = `/${CHANNEL}`

function bareSession(url: string, event: (event: NodeEvent) => void): ZooKeeperSession {
  const { hosts, chroot } = parseZooKeeperUrl(url)
  return new ZooKeeperSession({ servers: { endpoints: hosts, chroot }, clock: systemClock, timeoutMs: 30_000, event })
}

/** The kind of message that the server at `url` has. MySQL has none. */
export function messages(url: string): Kind | undefined {
  return KINDS[url.slice(0, url.indexOf(':'))]
}
