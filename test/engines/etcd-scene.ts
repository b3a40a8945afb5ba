/**
 * One etcd for the tests of a suite: the server, a client that looks at it without an engine, and engines that are
 * closed when their test has finished.
 */
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { EtcdClient, type EtcdClientOptions } from '../../src/clients/etcd/client.ts'
import { systemClock } from '../../src/core/clock.ts'
import { EtcdEngine } from '../../src/engines/etcd/engine.ts'
import { openEtcd } from '../../src/engines/etcd/index.ts'
import { EtcdServer, type EtcdSource } from '../servers/etcd.ts'

export class EtcdScene {
  #server: EtcdServer | undefined
  #direct: EtcdClient | undefined

  /** To be made in the body of a suite. */
  constructor(source: EtcdSource) {
    beforeAll(async () => {
      this.#server = await EtcdServer.start(source)
      this.#direct = new EtcdClient({ endpoints: [this.#server] })
    })
    afterAll(async () => {
      this.#direct?.close()
      await this.#server?.[Symbol.asyncDispose]()
    })
  }

  get server(): EtcdServer {
    if (this.#server === undefined) throw new Error('there is no server before the first test')
    return this.#server
  }

  get direct(): EtcdClient {
    if (this.#direct === undefined) throw new Error('there is no client before the first test')
    return this.#direct
  }

  async open(url: string = this.server.url): Promise<EtcdEngine> {
    const engine = await openEtcd(url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  /** On a client of another kind. */
  openOn<Client extends EtcdClient>(
    Kind: new (options: EtcdClientOptions) => Client,
  ): {
    readonly client: Client
    readonly engine: EtcdEngine
  } {
    const client = new Kind({ endpoints: [this.server] })
    const engine = new EtcdEngine(client, 'holdfast/', systemClock)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return { client, engine }
  }

  /** The keys in etcd of one line, in its order. */
  async keysOf(key: string): Promise<readonly string[]> {
    const line = { key: `holdfast/line/${key}/`, end: `holdfast/line/${key}0` }
    return (await this.direct.range({ ...line, oldestFirst: true })).kvs.map((kv) => kv.key)
  }
}
