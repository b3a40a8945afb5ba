/**
 * Locks on an etcd that wants to know who asks: certificates of both sides, users with rights to one prefix and nothing
 * else, tokens that run out.
 */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { openEtcd } from '../../src/engines/etcd/index.ts'
import { connect, createLocks, type Locks } from '../../src/index.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { Missing } from '../servers/programs.ts'
import { describeServer } from '../servers/suite.ts'
import { Authority } from '../servers/tls.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
/** A token lives longer while it is used. */
const SLOW = { timeout: 30_000, interval: 2_500 }

/** Everything that needs a right: enter, wait, hear, renew, look, list, evict, leave. */
async function lifeOfALock(one: Locks, other: Locks): Promise<void> {
  const lease = await one.mutex('secure').acquire()
  const next = other.mutex('secure').acquire()
  await vi.waitFor(async () => expect((await one.inspect('secure')).entries).toHaveLength(2), LIMIT)
  const listed: string[] = []
  for await (const { key } of one.list('sec')) listed.push(key)
  expect(listed).toEqual(['secure'])
  await lease.release()
  const granted = await next
  expect(granted.token ?? 0n).toBeGreaterThan(lease.token ?? 0n)
  expect(await one.evict('secure', granted.token ?? 0n, 'now')).toBe(true)
  await vi.waitFor(() => expect(granted.held).toBe(false), LIMIT)
}

await describeServer('etcd that asks who you are', findOwnEtcd, (source) => {
  let authority: Authority

  beforeAll(async () => {
    const made = await Authority.make()
    if (made instanceof Missing) throw new Error(made.reason)
    authority = made
  })
  afterAll(() => authority[Symbol.dispose]())

  function kept(locks: Locks): Locks {
    onTestFinished(() => locks.close())
    return locks
  }

  test('certificates of both sides, by files in the URL and by options', async () => {
    const { caFile, certificateFile, keyFile } = authority
    await using server = await EtcdServer.start(source, {
      authority,
      args: ['--client-cert-auth', '--trusted-ca-file', caFile],
    })
    const file = encodeURIComponent
    const url = `${server.url}?ca=${file(caFile)}&cert=${file(certificateFile)}&key=${file(keyFile)}`
    const tls = { ca: readFileSync(caFile), cert: readFileSync(certificateFile), key: readFileSync(keyFile) }
    await lifeOfALock(
      kept(await connect(url, { ttl: '2s' })),
      kept(createLocks(await openEtcd(server.url, { tls }), { ttl: '2s' })),
    )
    const anonymous = kept(await connect(`${server.url}?ca=${file(caFile)}`, { ttl: '2s' }))
    // Turned down, and not tried again: time does not mend it.
    await expect(anonymous.mutex('secure').acquire()).rejects.toMatchObject({ code: 'ENGINE', transient: false })
  })

  test('a user that may touch its prefix, and nothing else, whose tokens run out all the time', async () => {
    await using server = await EtcdServer.start(source, { args: ['--auth-token-ttl', '1'] })
    const ask = async (path: string, body: object): Promise<unknown> => {
      const answer = await fetch(`http://127.0.0.1:${server.port}/v3/${path}`, {
        method: 'POST',
        body: JSON.stringify(body),
      })
      expect(answer.ok, `${path}: ${answer.status}`).toBe(true)
      return await answer.json()
    }
    await ask('auth/user/add', { name: 'root', password: 'root' })
    await ask('auth/user/grant', { user: 'root', role: 'root' })
    await ask('auth/role/add', { name: 'locks' })
    const perm = { permType: 'READWRITE', key: btoa('app/'), range_end: btoa('app0') }
    await ask('auth/role/grant', { name: 'locks', perm })
    await ask('auth/user/add', { name: 'app', password: 'p@ss/w?rd' })
    await ask('auth/user/grant', { user: 'app', role: 'locks' })
    await ask('auth/enable', {})
    const url = `etcd://app:${encodeURIComponent('p@ss/w?rd')}@127.0.0.1:${server.port}`
    const [one, other] = [
      kept(await connect(`${url}?prefix=app%2F`, { ttl: '2s' })),
      kept(await connect(`${url}?prefix=app%2F`, { ttl: '2s' })),
    ]
    const held = await one.mutex('meanwhile').acquire()
    const waits = other.mutex('meanwhile').acquire()
    await lifeOfALock(one, other)
    // Until a token from now has run out: renewals, watches and what is asked next have to fetch new ones.
    const { token } = (await ask('auth/authenticate', { name: 'app', password: 'p@ss/w?rd' })) as { token: string }
    const range = { method: 'POST', body: JSON.stringify({ key: btoa('app/') }), headers: { authorization: token } }
    await vi.waitFor(
      async () => expect((await fetch(`http://127.0.0.1:${server.port}/v3/kv/range`, range)).ok).toBe(false),
      SLOW,
    )
    expect(held.held).toBe(true)
    await held.release()
    expect((await waits).held).toBe(true)
    await lifeOfALock(one, other)
    const elsewhere = kept(await connect(url, { ttl: '2s' }))
    const refused = elsewhere.mutex('not there').acquire({ wait: '10s' })
    await expect(refused).rejects.toMatchObject({
      code: 'ENGINE',
      message: expect.stringContaining('permission denied'),
    })
    await expect(refused).rejects.not.toThrow(/p@ss/)
  })
})
