/**
 * Truths about etcd that we lean on, asked of the real server. When one of these fails after an upgrade, an engine is
 * wrong before its own tests say so.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import type { Compare, RequestOp } from '../../src/clients/etcd/messages.ts'
import { EtcdServer, findEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'

/** Ours alone, since the server may have other users. */
const PREFIX = `holdfast-facts-${process.pid}/`
const name = (key: string): string => PREFIX + key
const put = (key: string, lease = 0n): RequestOp => ({ put: { key: name(key), value: key, lease } })
const range = (from: string, end: string): RequestOp => ({
  range: { key: name(from), end: name(end), oldestFirst: true },
})

await describeServer('etcd', findEtcd, (source) => {
  let server: EtcdServer
  let client: EtcdClient

  beforeAll(async () => {
    server = await EtcdServer.start(source)
    client = new EtcdClient({ endpoints: [server] })
  })
  afterAll(async () => {
    await client.txn({ success: [{ delete: { key: PREFIX, end: `${PREFIX}~` } }] })
    client.close()
    await server[Symbol.asyncDispose]()
  })

  test('a range after a put, in one transaction, sees it, with the revision of the transaction', async () => {
    const { header, responses } = await client.txn({ success: [put('seen'), range('seen', 'seen~')] })
    expect(responses[1]?.range?.kvs.map(({ createRevision }) => createRevision)).toEqual([header.revision])
  })

  test('all that one transaction creates has one revision', async () => {
    const { header, responses } = await client.txn({ success: [put('one/a'), put('one/b'), range('one/', 'one0')] })
    expect(responses[2]?.range?.kvs.map(({ createRevision }) => createRevision)).toEqual([
      header.revision,
      header.revision,
    ])
  })

  test('oldest first is by creation, whatever has changed since, and the count is of all', async () => {
    for (const key of ['order/c', 'order/a', 'order/b', 'order/c']) await client.txn({ success: [put(key)] })
    const { kvs, count } = await client.range({ key: name('order/'), end: name('order0'), oldestFirst: true, limit: 2 })
    expect({ keys: kvs.map(({ key }) => key), count }).toEqual({ keys: [name('order/c'), name('order/a')], count: 3 })
  })

  test('a put without a value moves a key to another lease, and keeps its value and the revision that created it', async () => {
    const [one, other] = [(await client.grant(60)).lease, (await client.grant(60)).lease]
    await client.txn({ success: [put('moved', one)] })
    const before = (await client.range({ key: name('moved') })).kvs[0]
    await client.txn({ success: [{ put: { key: name('moved'), lease: other } }] })
    await client.revoke(one)
    const after = (await client.range({ key: name('moved') })).kvs[0]
    expect(after).toMatchObject({ value: before?.value, createRevision: before?.createRevision, lease: other })
    await client.revoke(other)
    expect((await client.range({ key: name('moved') })).count).toBe(0)
  })

  test('a comparison of a range is true of an empty one, and of all keys or of none', async () => {
    const empty: Compare = { key: name('empty/'), end: name('empty0'), target: 'version', result: 'equal', value: 0n }
    expect((await client.txn({ compare: [empty], success: [put('empty/a')] })).succeeded).toBe(true)
    const { succeeded, header } = await client.txn({ compare: [empty], success: [] })
    expect(succeeded).toBe(false)
    const since = (revision: bigint): Compare => ({ ...empty, target: 'mod', result: 'less', value: revision + 1n })
    expect((await client.txn({ compare: [since(header.revision)], success: [] })).succeeded).toBe(true)
    await client.txn({ success: [put('empty/b')] })
    expect((await client.txn({ compare: [since(header.revision)], success: [] })).succeeded).toBe(false)
  })

  test('what is compared inside a transaction is compared before anything of it is done', async () => {
    const absent: Compare = { key: name('before'), target: 'create', result: 'equal', value: 0n }
    const { responses } = await client.txn({
      success: [
        { txn: { compare: [absent], success: [{ delete: { key: name('nothing') } }] } },
        { txn: { compare: [absent], success: [put('before')] } },
        { txn: { compare: [absent], success: [{ delete: { key: name('before') } }] } },
      ],
    })
    expect(responses.map(({ txn }) => txn?.succeeded)).toEqual([true, true, true])
    expect(responses[2]?.txn?.responses[0]?.deletion?.count).toBe(1)
  })

  test('a transaction that puts something under a lease that is gone does nothing at all', async () => {
    const { lease } = await client.grant(60)
    await client.revoke(lease)
    await expect(
      client.txn({ success: [put('nothing/a'), { txn: { success: [put('nothing/b', lease)] } }] }),
    ).rejects.toMatchObject({
      status: 5,
    })
    expect((await client.range({ key: name('nothing/'), end: name('nothing0') })).count).toBe(0)
  })

  test('a hundred transactions fit into one', async () => {
    const inner = (index: number): RequestOp => ({
      txn: {
        compare: [{ key: name(`fit/${index}`), target: 'create', result: 'equal', value: 0n }],
        success: [put(`fit/${index}`), range(`fit/${index}`, `fit/${index}~`), range(`fit/${index}`, `fit/${index}~`)],
        failure: [{ txn: { success: [put(`fit/${index}`)] } }],
      },
    })
    const { responses } = await client.txn({ success: Array.from({ length: 100 }, (_, index) => inner(index)) })
    expect(responses.every(({ txn }) => txn?.succeeded)).toBe(true)
  })

  test('a lease of one second is granted as two, and one that ends takes all its keys at once', async () => {
    const { lease, seconds } = await client.grant(1)
    expect(seconds).toBe(2)
    await client.txn({ success: [put('short/a', lease), put('short/b', lease)] })
    await client.revoke(lease)
    expect((await client.range({ key: name('short/'), end: name('short0') })).count).toBe(0)
  })

  test('a keep-alive tells the term, and so does a read', async () => {
    const { lease } = await client.grant(60)
    const { header } = await client.keepAlive(lease)
    expect(header.term).toBeGreaterThan(0n)
    expect((await client.range({ key: name('any') })).header.term).toBe(header.term)
    await client.revoke(lease)
  })
})
