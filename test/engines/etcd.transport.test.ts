/**
 * The way to etcd, by itself, against real servers: limits, fail-over, certificates, users, watches that go on where
 * they were.
 */

import { getEventListeners } from 'node:events'
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { EtcdClient, type EtcdClientOptions } from '../../src/clients/etcd/client.ts'
import { RpcError } from '../../src/clients/etcd/errors.ts'
import type { RequestOp, WatchEvent } from '../../src/clients/etcd/messages.ts'
import { WatchStream } from '../../src/clients/etcd/watch-stream.ts'
import { systemClock } from '../../src/core/clock.ts'
import { EtcdEnsemble } from '../servers/ensemble.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { freePort } from '../servers/ports.ts'
import { Missing } from '../servers/programs.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { Authority } from '../servers/tls.ts'

const LIMIT = { timeout: 30_000, interval: 10 }

/** As an administrator does it, without our client. */
async function gateway(
  { port }: EtcdServer,
  path: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<Record<string, unknown>> {
  const answer = await fetch(`http://127.0.0.1:${port}/v3/${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers,
  })
  if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`)
  return (await answer.json()) as Record<string, unknown>
}

function open(
  endpoints: readonly { readonly port: number; readonly host?: string }[],
  options: Partial<EtcdClientOptions> = {},
): EtcdClient {
  const client = new EtcdClient({ endpoints: endpoints.map(({ port }) => ({ host: '127.0.0.1', port })), ...options })
  onTestFinished(() => client.close())
  return client
}

const put = (key: string, value = 'x'): RequestOp => ({ put: { key, value, lease: 0n } })

await describeServer('the transport of etcd', findOwnEtcd, (source) => {
  let server: EtcdServer

  beforeAll(async () => {
    server = await EtcdServer.start(source)
  })
  afterAll(async () => server[Symbol.asyncDispose]())

  async function proxied(): Promise<FaultProxy> {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    return proxy
  }

  test('transactions inside transactions are decided one by one, and answered in order', async () => {
    const client = open([server])
    await client.txn({ success: [put('there')] })
    const absent = (key: string): RequestOp => ({
      txn: {
        compare: [{ key, target: 'create', result: 'equal', value: 0n }],
        success: [put(key), { range: { key } }],
        failure: [{ delete: { key } }],
      },
    })
    const { responses, header } = await client.txn({ success: [absent('new'), absent('there')] })
    expect(responses.map(({ txn }) => txn?.succeeded)).toEqual([true, false])
    expect(responses[0]?.txn?.responses[1]?.range?.kvs[0]?.createRevision).toBe(header.revision)
    expect(responses[1]?.txn?.responses[0]?.deletion?.count).toBe(1)
  })

  test('answers of any size are read', async () => {
    const client = open([server])
    const value = 'ü'.repeat(50_000)
    for (let index = 0; index < 20; index += 1) await client.txn({ success: [put(`large/${index}`, value)] })
    const { kvs, count } = await client.range({ key: 'large/', end: 'large0', oldestFirst: true, limit: 15 })
    expect({ count, read: kvs.length }).toEqual({ count: 20, read: 15 })
    expect(kvs.every((kv) => kv.value.toString() === value)).toBe(true)
    expect(kvs[0]?.key).toBe('large/0')
  })

  test('a lease is granted, kept alive and revoked with its keys; one that is gone answers 0', async () => {
    const client = open([server])
    const { lease, seconds } = await client.grant(60)
    expect(seconds).toBe(60)
    await client.txn({ success: [{ put: { key: 'leased', value: 'x', lease } }] })
    expect((await client.keepAlive(lease)).seconds).toBe(60)
    expect((await client.timeOf(lease)).grantedSeconds).toBe(60)
    await client.revoke(lease)
    expect((await client.range({ key: 'leased' })).count).toBe(0)
    expect((await client.keepAlive(lease)).seconds).toBe(0)
    await expect(client.txn({ success: [{ put: { key: 'leased', value: 'x', lease } }] })).rejects.toMatchObject({
      refused: true,
    })
  })

  test('a server that is not there refuses at once, and nothing was done', async () => {
    const client = open([{ port: await freePort() }])
    await expect(client.range({ key: 'a' })).rejects.toMatchObject({ refused: true, lasting: false })
  })

  test('a call that is not answered ends by itself, its outcome unknown; when the server is back, so are we', async () => {
    const proxy = await proxied()
    const client = open([proxy])
    await client.connect()
    proxy.blackHole()
    const error: unknown = await client.txn({ success: [put('lost')] }).catch((failure: unknown) => failure)
    expect(error).toBeInstanceOf(RpcError)
    expect((error as RpcError).refused).toBe(false)
    await proxy.heal()
    await expect(client.range({ key: 'lost' })).resolves.toBeDefined()
  })

  test('a call that is given up leaves no listener on its signal', async () => {
    const proxy = await proxied()
    const client = open([proxy])
    await client.connect()
    proxy.blackHole('replies')
    const giving = new AbortController()
    const asked = client.range({ key: 'a' }, { signal: giving.signal })
    await vi.waitFor(() => expect(proxy.heldBytes('replies')).toBeGreaterThan(0), LIMIT)
    giving.abort()
    await expect(asked).rejects.toMatchObject({ refused: false })
    expect(getEventListeners(giving.signal, 'abort')).toHaveLength(0)
    await expect(client.range({ key: 'a' }, { signal: giving.signal })).rejects.toMatchObject({ refused: true })
  })

  test('a member that refuses is passed over, whatever its place in the list', async () => {
    const client = open([{ port: await freePort() }, { port: await freePort() }, server])
    await expect(client.range({ key: 'a' })).resolves.toBeDefined()
  })

  test('a connection that is cut under calls fails them, and the next one has a new one', async () => {
    const proxy = await proxied()
    const client = open([proxy])
    await client.connect()
    proxy.blackHole('replies')
    const asked = Promise.allSettled(
      Array.from({ length: 20 }, (_, index) => client.txn({ success: [put(`cut/${index}`)] })),
    )
    await vi.waitFor(() => expect(proxy.heldBytes('replies')).toBeGreaterThan(0), LIMIT)
    proxy.reset()
    await proxy.heal()
    expect((await asked).every(({ status }) => status === 'rejected')).toBe(true)
    await expect(client.range({ key: 'cut/0' })).resolves.toBeDefined()
  })

  describe('watches', () => {
    function watching(
      client: EtcdClient,
      fromRevision = 0n,
    ): { keys: string[]; ready: () => Promise<void>; compacted: () => boolean } {
      const watches = new WatchStream(client, systemClock)
      onTestFinished(() => watches.stop())
      const keys: string[] = []
      let [created, compacted] = [0, false]
      const changed = (events: readonly WatchEvent[]): void =>
        void keys.push(...events.map(({ kind, kv }) => `${kind} ${kv.key}`))
      const watcher = {
        changed,
        created: () => {
          created += 1
        },
        compacted: () => {
          compacted = true
        },
        refused: () => undefined,
      }
      watches.add({ key: 'watched/', end: 'watched0', fromRevision, deletesOnly: false }, watcher)
      return {
        keys,
        ready: async () => vi.waitFor(() => expect(created).toBeGreaterThan(0), LIMIT),
        compacted: () => compacted,
      }
    }

    test('a watch goes on where it was when its connection is cut: nothing is missed, nothing is told twice', async () => {
      const proxy = await proxied()
      const direct = open([server])
      const { keys, ready } = watching(open([proxy]))
      await ready()
      const expected: string[] = []
      for (let round = 0; round < 5; round += 1) {
        for (const op of ['a', 'b', 'c']) {
          await direct.txn({ success: [put(`watched/${round}${op}`)] })
          expected.push(`put watched/${round}${op}`)
          if (op === 'b') proxy.reset()
        }
      }
      await direct.txn({ success: [{ delete: { key: 'watched/', end: 'watched0' } }] })
      expected.push(...expected.map((put) => put.replace('put', 'delete')))
      await vi.waitFor(() => expect(keys).toHaveLength(expected.length), LIMIT)
      expect(keys).toEqual(expected)
    })

    test('a revision that was compacted away is told', async () => {
      const direct = open([server])
      const { header } = await direct.txn({ success: [put('watched/old')] })
      await direct.txn({ success: [put('watched/new')] })
      await gateway(server, 'kv/compaction', { revision: String(header.revision + 1n) })
      const { compacted, keys } = watching(direct, header.revision)
      await vi.waitFor(() => expect(compacted()).toBe(true), LIMIT)
      expect(keys).toEqual([])
    })
  })

  describe('several members', () => {
    let ensemble: EtcdEnsemble

    beforeAll(async () => {
      ensemble = await EtcdEnsemble.start(source.program)
    })
    afterAll(async () => ensemble[Symbol.asyncDispose]())

    /** Asked again until it is answered, as the core does. */
    const eventually = (client: EtcdClient, key: string): Promise<void> =>
      vi.waitFor(async () => void (await client.txn({ success: [put(key)] })), LIMIT)

    test.each(['follower', 'leader'] as const)(
      'a frozen %s is left for another member, and watches with it',
      async (which) => {
        const leader = await ensemble.leader()
        const [follower] = ensemble.servers.filter((one) => one !== leader) as [EtcdServer]
        const victim = which === 'leader' ? leader : follower
        const rest = ensemble.servers.filter((one) => one !== victim)
        const client = open([victim, ...rest])
        const watches = new WatchStream(client, systemClock)
        onTestFinished(() => watches.stop())
        const [changed, created, ended] = [vi.fn(), vi.fn(), vi.fn()]
        const watcher = { changed, created, compacted: ended, refused: ended }
        watches.add({ key: `frozen ${which}`, fromRevision: 0n, deletesOnly: false }, watcher)
        await vi.waitFor(() => expect(created).toHaveBeenCalled(), LIMIT)
        victim.process?.pause()
        onTestFinished(() => victim.process?.resume())
        await eventually(client, `frozen ${which}`)
        await vi.waitFor(() => expect(changed).toHaveBeenCalled(), LIMIT)
      },
    )

    test('a member that is cut off from the others says so, and others are asked', async () => {
      const leader = await ensemble.leader()
      const others = ensemble.servers.filter((one) => one !== leader)
      const client = open([leader, ...others])
      await client.txn({ success: [put('before')] })
      await ensemble.cutOff(leader)
      onTestFinished(() => ensemble.heal())
      await eventually(client, 'after')
    })
  })

  test('with TLS a server is believed by its certificate, and not without', async () => {
    const authority = await Authority.make()
    if (authority instanceof Missing) throw new Error(authority.reason)
    using made = authority
    await using secure = await EtcdServer.start(source, { authority: made })
    const client = open([secure], { tls: { ca: readFileSync(made.caFile) } })
    await expect(client.range({ key: 'a' })).resolves.toBeDefined()
    await expect(open([secure], { tls: {} }).range({ key: 'a' })).rejects.toMatchObject({
      refused: true,
      lasting: true,
    })
  })

  test('a user is known by its password, and again when the server has forgotten its token', async () => {
    await using own = await EtcdServer.start(source)
    await gateway(own, 'auth/user/add', { name: 'root', password: 'secret' })
    await gateway(own, 'auth/user/grant', { user: 'root', role: 'root' })
    const early = open([own], { user: { name: 'root', password: 'secret' } })
    await early.txn({ success: [put('before users count')] })
    await gateway(own, 'auth/enable', {})
    await early.txn({ success: [put('from now on they do')] })
    await expect(open([own], { user: { name: 'root', password: 'wrong' } }).range({ key: 'a' })).rejects.toMatchObject({
      refused: true,
      lasting: true,
    })
    await expect(open([own]).range({ key: 'a' })).rejects.toMatchObject({ refused: true, lasting: true })
    // Tokens of this kind are kept in memory.
    await own.process?.kill()
    await own.process?.start()
    await vi.waitFor(async () => void (await early.txn({ success: [put('after a restart')] })), LIMIT)
    const { token } = await gateway(own, 'auth/authenticate', { name: 'root', password: 'secret' })
    await gateway(own, 'auth/user/add', { name: 'somebody', password: 'x' }, { authorization: String(token) })
    // The users have changed: tokens from before are too old.
    await early.txn({ success: [put('after a change')] })
  })
})
