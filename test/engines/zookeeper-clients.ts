/** Another client of ZooKeeper on the same node: it excludes us, and we it, in order, both ways. */
import { afterAll, beforeAll, beforeEach, expect, type TestContext, test, vi } from 'vitest'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type LineEntry, type Locks } from '../../src/index.ts'
import type { Missing } from '../servers/programs.ts'
import { describeServer, present } from '../servers/suite.ts'
import { findOwnZooKeeper, type ZooKeeperProgram, ZooKeeperServer } from '../servers/zookeeper.ts'

const LIMIT = { timeout: 60_000, interval: 10 }

export interface OtherClient {
  readonly name: string
  /** Of our URL. */
  readonly query: string
  find(program: ZooKeeperProgram): Promise<{ run(program: string): Promise<string> } | Missing>
  /** A whole program around these lines, in which `lock` is on `path`. */
  program(port: number, path: string, lines: readonly string[]): string
  /** How it prints that it has the lock, and that it has not. */
  readonly yes: string
  readonly no: string
  /** One try that does not wait, printed. */
  readonly tries: readonly string[]
  /** A wait, printed, and a release. */
  readonly waits: readonly string[]
  /** It holds until one of ours waits behind it, prints how many are in line, and releases. */
  readonly holdsUntilWaitedFor: readonly string[]
  /** What we see of an entry of it. */
  readonly entry: Partial<LineEntry>
}

/** What further tests of one client use. */
export interface SharedNode {
  readonly server: ZooKeeperServer
  readonly locks: Locks
  readonly key: string
  /** What a program of the other client prints. */
  theirs(context: TestContext, lines: readonly string[]): Promise<string>
  /** Until so many are in line. */
  inLine(count: number): Promise<void>
}

export async function describeOtherClient(client: OtherClient, more: (node: SharedNode) => void): Promise<void> {
  await describeServer(`${client.name} on the same node`, findOwnZooKeeper, (source) => {
    let server: ZooKeeperServer
    let locks: Locks
    let found: Awaited<ReturnType<OtherClient['find']>>
    let key: string
    let keys = 0

    beforeAll(async () => {
      server = await ZooKeeperServer.start(source)
      locks = createLocks(await openZooKeeper(`${server.url}${client.query}`), { ttl: '30s' })
      found = await client.find(source.program)
    }, 300_000)

    beforeEach(() => {
      keys += 1
      key = `order:${keys}`
    })

    afterAll(async () => {
      await locks.close()
      await server[Symbol.asyncDispose]()
    })

    const theirs: SharedNode['theirs'] = async (context, lines) =>
      await present(found, context).run(client.program(server.port, `/holdfast/${key}`, lines))

    const inLine = (count: number): Promise<void> =>
      vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)

    test('it does not get what we hold, waits for it, and has it when we have released', async (context) => {
      const lease = await locks.mutex(key).acquire()
      expect(await theirs(context, client.tries)).toBe(client.no)
      const waiting = theirs(context, client.waits)
      await inLine(2)
      expect(await lease.release()).toBe(true)
      expect(await waiting).toBe(client.yes)
    })

    test('we do not get what it holds, wait for it, and have it when it has released', async (context) => {
      const holding = theirs(context, client.holdsUntilWaitedFor)
      await inLine(1)
      expect((await locks.inspect(key)).entries[0]).toMatchObject({
        state: 'held',
        weight: 1,
        limit: 1,
        ...client.entry,
      })
      expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
      const lease = await locks.mutex(key).acquire()
      expect(lease.held).toBe(true)
      expect(await holding).toBe('2')
      expect((await locks.inspect(key)).entries).toHaveLength(1)
      expect(await lease.release()).toBe(true)
    })

    test('both are served in the order in which they came', async (context) => {
      const first = await locks.mutex(key).acquire()
      const waiting = theirs(context, client.waits)
      await inLine(2)
      const ours = locks.mutex(key).acquire()
      await inLine(3)
      await first.release()
      const lease = await ours
      // It has released before we were let in.
      expect((await locks.inspect(key)).entries).toHaveLength(1)
      expect(await waiting).toBe(client.yes)
      await lease.release()
    })

    more({
      get server() {
        return server
      },
      get locks() {
        return locks
      },
      get key() {
        return key
      },
      theirs,
      inLine,
    })
  })
}
