/** The client of ZooKeeper on a real server: requests, watches, sessions that go on and sessions that end. */
import { createServer } from 'node:net'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { ZOOKEEPER_CODE } from '../../src/clients/zookeeper/errors.ts'
import { type NodeEvent, type NodeMode, OPCODE, SPECIAL_XID } from '../../src/clients/zookeeper/messages.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import type { ZooKeeperServers } from '../../src/clients/zookeeper/session-connection.ts'
import { systemClock } from '../../src/core/clock.ts'
import { moveSteps } from '../../src/engines/zookeeper/move-entry.ts'
import { freePort } from '../servers/ports.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperTap } from '../servers/zookeeper-tap.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const NOTHING = Buffer.alloc(0)
const THROTTLED = { code: ZOOKEEPER_CODE.throttled, refused: true }

interface Opened {
  readonly session: ZooKeeperSession
  readonly events: NodeEvent[]
  readonly told: string[]
}

await describeServer('the client of ZooKeeper', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  function open(servers: Partial<ZooKeeperServers> = {}, timeoutMs = 8_000): Opened {
    const events: NodeEvent[] = []
    const told: string[] = []
    const session = new ZooKeeperSession({
      servers: { endpoints: [server], chroot: '', ...servers },
      clock: systemClock,
      timeoutMs,
      event: (event) => events.push(event),
      reconnected: () => told.push('reconnected'),
      ended: (error) => told.push(error.message),
    })
    onTestFinished(() => session.close())
    return { session, events, told }
  }

  async function proxied(): Promise<FaultProxy> {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    return proxy
  }

  const node = (path: string, mode: NodeMode = 'persistent', data = ''): Parameters<ZooKeeperSession['create']>[0] => ({
    path,
    mode,
    data: Buffer.from(data),
    acl: 'open',
  })

  test('creates, reads, writes, lists and deletes', async () => {
    const { session } = open()
    const made = await session.create(node('/a', 'persistent', 'first'))
    expect(made.path).toBe('/a')
    expect((await session.getData('/a')).data.toString()).toBe('first')
    await session.setData('/a', Buffer.from('second'), 0)
    const { data, stat } = await session.getData('/a')
    expect([data.toString(), stat.version, stat.czxid]).toEqual(['second', 1, made.stat.czxid])
    await session.create(node('/a/ä 1'))
    expect(await session.getChildren('/a')).toEqual(['ä 1'])
    await expect(session.delete('/a')).rejects.toThrow('the node has children')
    await expect(session.setData('/a', NOTHING, 7)).rejects.toThrow('the node has changed meanwhile')
    await session.delete('/a/ä 1')
    await session.delete('/a')
    expect(await session.exists('/a')).toBeUndefined()
    await expect(session.getData('/a')).rejects.toMatchObject({ code: -101, refused: true })
  })

  test('numbers sequential nodes, and ends ephemeral ones with the session', async () => {
    const [one, other] = [open(), open()]
    await other.session.create(node('/line', 'container'))
    const paths = await Promise.all(
      ['x-', 'y-'].map(async (name) => (await one.session.create(node(`/line/${name}`, 'ephemeral-sequential'))).path),
    )
    expect(paths).toEqual(['/line/x-0000000000', '/line/y-0000000001'])
    expect((await other.session.exists('/line/x-0000000000'))?.ephemeralOwner).toBe(one.session.id)
    await one.session.close()
    expect(await other.session.getChildren('/line')).toEqual([])
    await expect(one.session.exists('/line')).rejects.toThrow('the session was closed')
  })

  test('does all steps of a multi, or none', async () => {
    const { session } = open()
    await session.create(node('/multi'))
    await session.multi([{ check: { path: '/multi', version: 0 } }, { create: node('/multi/one', 'ephemeral') }])
    expect((await session.exists('/multi/one'))?.ephemeralOwner).toBe(session.id)
    const bad = session.multi([
      { delete: { path: '/multi/one', version: -1 } },
      { delete: { path: '/multi/two', version: -1 } },
    ])
    await expect(bad).rejects.toMatchObject({ code: -101 })
    expect(await session.getChildren('/multi')).toEqual(['one'])
    // The same node, in one step, for another session: its name stays, and its owner changes.
    const { session: next } = open()
    await next.multi([{ delete: { path: '/multi/one', version: -1 } }, { create: node('/multi/one', 'ephemeral') }])
    expect((await session.exists('/multi/one'))?.ephemeralOwner).toBe(next.id)
  })

  test('creates, lists and deletes several in one request each, all of them or none', async () => {
    const whole = open().session
    await whole.create(node('/several'))
    const { session } = open({ chroot: '/several' })
    for (const name of ['/a', '/b']) await session.create(node(name))
    const made = await session.createAll(['/a/x-', '/b/y-'].map((path) => node(path, 'ephemeral-sequential', 'data')))
    expect(made.map(({ path }) => path)).toEqual(['/a/x-0000000000', '/b/y-0000000000'])
    for (const { path, czxid } of made) {
      const { data, stat } = await session.getData(path)
      expect([data.toString(), stat.czxid, stat.ephemeralOwner]).toEqual(['data', czxid, session.id])
    }
    const lists = await session.getChildrenOfAll(['/a', '/none', '/b'])
    expect(lists).toMatchObject([['x-0000000000'], { code: -101 }, ['y-0000000000']])
    const more = ['/a/x-', '/none/x-'].map((path) => node(path, 'ephemeral-sequential'))
    await expect(session.createAll(more)).rejects.toMatchObject({ code: -101, refused: true })
    const paths = made.map(({ path }) => path)
    await expect(session.deleteAll([...paths, '/a/none'])).rejects.toMatchObject({ code: -101, refused: true })
    expect(await session.getChildrenOfAll(['/a', '/b'])).toEqual([['x-0000000000'], ['y-0000000000']])
    await session.deleteAll(paths)
    expect(await session.getChildrenOfAll(['/a', '/b'])).toEqual([[], []])
  })

  test('lists several one by one where the server does not know how to list them at once', async () => {
    // To this server as to ZooKeeper 3.5, which does not know the number that we use.
    await using tap = await ZooKeeperTap.start(server, (opcode) => (opcode === OPCODE.multiRead ? 9_999 : opcode))
    const { session, told } = open({ endpoints: [tap] })
    await session.create(node('/older'))
    const asked = [session.getData('/older'), session.getChildrenOfAll(['/older', '/none'])] as const
    // Said out of turn. What was asked before is of unknown outcome, or was answered.
    await asked[0].catch((error: unknown) => expect(error).toMatchObject({ code: -4, refused: false }))
    expect(await asked[1]).toMatchObject([[], { code: -101 }])
    expect(await session.getChildrenOfAll(['/older'])).toEqual([[]])
    expect(told).toEqual(['reconnected'])
    expect(tap.requests.filter((opcode) => opcode === OPCODE.multiRead)).toHaveLength(1)
  })

  test('sees everything below its chroot, and nothing else', async () => {
    const whole = open().session
    await whole.create(node('/app'))
    const { session, events } = open({ chroot: '/app' })
    expect((await session.create(node('/in'))).path).toBe('/in')
    expect(await session.getChildren('/', { watch: true })).toEqual(['in'])
    await session.getData('/in', { watch: true })
    await whole.delete('/app/in')
    await vi.waitFor(() => expect(events.map(({ path }) => path).toSorted()).toEqual(['/', '/in']), LIMIT)
    await session.confirm()
  })

  test('goes on with the same session after a cut, and hears what its watches have missed', async () => {
    const proxy = await proxied()
    const { session, events, told } = open({ endpoints: [{ host: '127.0.0.1', port: proxy.port }] })
    const other = open().session
    await session.create(node('/watched'))
    await session.create(node('/mine', 'ephemeral'))
    await session.getData('/watched', { watch: true })
    const { id } = session
    await proxy.refuse()
    await other.delete('/watched')
    await proxy.heal()
    await vi.waitFor(() => expect(events).toEqual([{ kind: 'deleted', path: '/watched', inOrder: false }]), LIMIT)
    expect((await session.exists('/mine'))?.ephemeralOwner).toBe(id)
    expect(session.id).toBe(id)
    expect(told).toEqual(['reconnected'])
  })

  test('after a cut, events are in order again when all watches have told what they have missed', async () => {
    const proxy = await proxied()
    const { session, events } = open({ endpoints: [{ host: '127.0.0.1', port: proxy.port }] })
    const other = open().session
    // More than one message takes.
    const paths = Array.from({ length: 450 }, (_, index) => `/missed-${index}`)
    await Promise.all(paths.map((path) => session.create(node(path))))
    await Promise.all(paths.map((path) => session.getData(path, { watch: true })))
    await proxy.refuse()
    // The first and the last, in the other order.
    const [first, last] = [paths[0] as string, paths.at(-1) as string]
    await other.delete(last)
    await other.delete(first)
    await proxy.heal()
    await vi.waitFor(() => expect(events).toHaveLength(2), LIMIT)
    expect(events).toEqual([first, last].map((path) => ({ kind: 'deleted', path, inOrder: false })))
    await session.confirm()
    await other.delete(paths[1] as string)
    await vi.waitFor(() => expect(events).toHaveLength(3), LIMIT)
    expect(events[2]).toEqual({ kind: 'deleted', path: paths[1], inOrder: true })
  })

  test('what was missed is told, though the next connection is cut before all watches are set again', async () => {
    let pass: (() => void) | undefined
    let sets = 0
    const tap = await ZooKeeperTap.start(server, (sent) => {
      if (sent === OPCODE.setWatches) sets += 1
      if (sets === 2) pass ??= tap.keepBack(OPCODE.setWatches)
      return sent
    })
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const proxy = await FaultProxy.start(tap)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const { session, events } = open({ endpoints: [{ host: '127.0.0.1', port: proxy.port }] })
    const other = open().session
    // Two messages.
    const paths = Array.from({ length: 250 }, (_, index) => `/set again-${index}`)
    await Promise.all(paths.map((path) => other.create(node(path))))
    await Promise.all(paths.map((path) => session.getData(path, { watch: true })))
    await proxy.refuse()
    const [first, last] = [paths[0] as string, paths.at(-1) as string]
    await other.setData(first, NOTHING)
    await other.setData(last, NOTHING)
    await proxy.heal()
    // The first message is answered, and the second one never comes to the server.
    await vi.waitFor(() => expect(tap.answers).toContain(SPECIAL_XID.setWatches), LIMIT)
    await vi.waitFor(() => expect(events.map(({ path }) => path)).toEqual([first]), LIMIT)
    await proxy.refuse()
    pass?.()
    await proxy.heal()
    await vi.waitFor(() => expect(events.map(({ path }) => path)).toEqual([first, last]), LIMIT)
  })

  test.each(['heard at once', 'missed'])(
    'a node that is moved in one step has changed, to its watchers: %s',
    async (how) => {
      const proxy = await proxied()
      const { session, events } = open({ endpoints: [{ host: '127.0.0.1', port: proxy.port }] })
      const [owner, other] = [open().session, open().session]
      const path = `/moved, ${how}`
      await owner.create(node(path, 'ephemeral'))
      const { stat } = await session.getData(path, { watch: true })
      if (how === 'missed') await proxy.refuse()
      await other.multi(moveSteps({ path, version: stat.version, data: NOTHING, acl: 'open' }))
      if (how === 'missed') await proxy.heal()
      await vi.waitFor(() => expect(events).toEqual([{ kind: 'changed', path, inOrder: how !== 'missed' }]), LIMIT)
      expect((await session.exists(path, { watch: true }))?.ephemeralOwner).toBe(other.id)
      await other.delete(path)
      await vi.waitFor(() => expect(events[1]).toEqual({ kind: 'deleted', path, inOrder: true }), LIMIT)
      expect(events).toHaveLength(2)
    },
  )

  test('a request whose reply is lost is of unknown outcome, and may have been done', async () => {
    const proxy = await proxied()
    const { session } = open({ endpoints: [{ host: '127.0.0.1', port: proxy.port }] })
    await session.connect()
    proxy.blackHole('replies')
    const asked = session.create(node('/lost', 'ephemeral'))
    asked.catch(() => undefined)
    const other = open().session
    await vi.waitFor(async () => expect(await other.exists('/lost')).toBeDefined(), LIMIT)
    proxy.reset()
    await expect(asked).rejects.toMatchObject({ code: -4, refused: false })
    await proxy.heal()
    expect((await session.exists('/lost'))?.ephemeralOwner).toBe(session.id)
  })

  test('leaves a server that answers nothing for another, before the session is over', async () => {
    const proxy = await proxied()
    const [dead, alive] = [{ host: '127.0.0.1', port: proxy.port }, server]
    const endpoints: { host: string; port: number }[] = [dead]
    const { session, told } = open({ endpoints }, 6_000)
    await session.create(node('/goes-on', 'ephemeral'))
    const { id } = session
    const twin = open({ endpoints: [dead, alive] }, 6_000)
    await twin.session.create(node('/goes-on-too', 'ephemeral'))
    proxy.blackHole()
    if (twin.session.endpoint === dead) await vi.waitFor(() => expect(twin.told).toEqual(['reconnected']), LIMIT)
    expect((await twin.session.exists('/goes-on-too'))?.ephemeralOwner).toBe(twin.session.id)
    // The other one has no other server. Its session runs out, and it is told so when it is back.
    await expect(session.exists('/goes-on')).rejects.toMatchObject({ code: -4 })
    await vi.waitFor(async () => expect(await twin.session.exists('/goes-on')).toBeUndefined(), LIMIT)
    await proxy.heal()
    await vi.waitFor(() => expect(told).toContain('the session has expired'), LIMIT)
    await expect(session.exists('/goes-on')).rejects.toMatchObject({ code: -112, refused: true })
    expect(session.id).toBe(id)
  })

  test('goes on after a frozen server has thawed', async () => {
    await using own = await ZooKeeperServer.start(source)
    const { session } = open({ endpoints: [own] }, 20_000)
    await session.create(node('/thaws', 'ephemeral'))
    own.process?.pause()
    await expect(session.exists('/thaws')).rejects.toMatchObject({ code: -4 })
    own.process?.resume()
    await vi.waitFor(async () => expect((await session.exists('/thaws'))?.ephemeralOwner).toBe(session.id), LIMIT)
  })

  test('an abandoned session runs out by itself, and not before', async () => {
    const [left, other] = [open({}, 1_000).session, open().session]
    await left.create(node('/left', 'ephemeral'))
    left.abandon()
    expect(await other.exists('/left')).toBeDefined()
    await vi.waitFor(async () => expect(await other.exists('/left')).toBeUndefined(), LIMIT)
  })

  test('credentials decide who may do what', async () => {
    const auth = { scheme: 'digest', credentials: 'ann:secret' }
    const ann = open({ auth }).session
    await ann.create({ ...node('/private'), acl: 'creator' })
    await ann.setData('/private', Buffer.from('mine'))
    const stranger = open().session
    await expect(stranger.getData('/private')).rejects.toMatchObject({ code: -102, lasting: true })
    const other = open({ auth: { scheme: 'digest', credentials: 'ann:wrong' } }).session
    await expect(other.getData('/private')).rejects.toMatchObject({ code: -102, lasting: true })
  })

  test('a scheme that the server does not know is refused, and that is final', async () => {
    const { session, told } = open({ auth: { scheme: 'nonsense', credentials: 'x' } })
    await expect(session.exists('/')).rejects.toMatchObject({ code: -115, lasting: true })
    expect(told).toHaveLength(1)
    await expect(session.exists('/')).rejects.toThrow('refuses the credentials')
  })

  test('no server there: the error says where, and why', async () => {
    const port = await freePort()
    const { session } = open({ endpoints: [{ host: '127.0.0.1', port }] })
    await expect(session.connect()).rejects.toThrow(`connect ECONNREFUSED 127.0.0.1:${port}`)
  })

  test('something else answers there: the error says so', async () => {
    const other = createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')).listen(0, '127.0.0.1')
    onTestFinished(() => void other.close())
    await vi.waitFor(() => expect(other.address()).not.toBeNull(), LIMIT)
    const { port } = other.address() as { port: number }
    const { session } = open({ endpoints: [{ host: '127.0.0.1', port }] })
    const wrong = { refused: true, lasting: true, message: expect.stringContaining('not that of a ZooKeeper server') }
    await expect(session.connect()).rejects.toMatchObject(wrong)
  })

  test('a thousand requests at once are answered each with its own', async () => {
    const { session } = open()
    await session.create(node('/many', 'container'))
    const numbers = Array.from({ length: 1_000 }, (_, index) => index)
    const paths = await Promise.all(
      numbers.map(async (index) => (await session.create(node(`/many/${index}`, 'ephemeral'))).path),
    )
    expect(paths).toEqual(numbers.map((index) => `/many/${index}`))
  })

  test('a request that was throttled confirms nothing: the server has answered it alone', async () => {
    // One request at a time; each that waits behind it for longer than that is throttled.
    const limits = ['-Dzookeeper.request_throttle_max_requests=1', '-Dzookeeper.throttled_op_wait_time=1']
    await using throttling = await ZooKeeperServer.start(source, { java: limits })
    const { session } = open({ endpoints: [throttling] })
    await vi.waitFor(async () => {
      const confirmed = await Promise.allSettled(Array.from({ length: 10 }, () => session.confirm()))
      expect(confirmed).toContainEqual({ status: 'rejected', reason: expect.objectContaining(THROTTLED) })
    }, LIMIT)
  })
})
