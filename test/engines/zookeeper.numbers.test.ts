/**
 * A line that has had 2^31 entries: the server gives the last number again and again. No test waits for so many. A log
 * of transactions is written by hand that says so, and the server begins with it.
 */
import { expect, onTestFinished, test } from 'vitest'
import { JuteWriter } from '../../src/clients/zookeeper/jute.ts'
import { OPCODE, writeCreate } from '../../src/clients/zookeeper/messages.ts'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { newClaim } from '../claims.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'

const LAST = 2 ** 31 - 1
const KEY = 'old'

function adler32(bytes: Buffer): bigint {
  let [a, b] = [1, 0]
  for (const byte of bytes) {
    a = (a + byte) % 65_521
    b = (b + a) % 65_521
  }
  return BigInt(b) * 65_536n + BigInt(a)
}

/** Nodes that stay, and how many children their parents have had by then. */
function logOf(nodes: readonly { readonly path: string; readonly childrenOfParent: number }[]): Buffer {
  const head = new JuteWriter().int(0x5a4b4c47).int(2).long(0n).framed().subarray(4)
  const parts = nodes.map(({ path, childrenOfParent }, index) => {
    const writer = new JuteWriter()
      .long(0n)
      .int(index)
      .long(BigInt(index + 1))
      .long(0n)
      .int(OPCODE.create)
    writeCreate(writer, { path, data: Buffer.alloc(0), mode: 'persistent', acl: 'open' })
    // In the log there is no mode: whether it is ephemeral, and the number of its parent.
    const bytes = writer.framed().subarray(4, -4)
    const entry = Buffer.concat([bytes, new JuteWriter().bool(false).int(childrenOfParent).framed().subarray(4)])
    return new JuteWriter().long(adler32(entry)).bytes(entry).bool(true).framed().subarray(4, -1)
  })
  return Buffer.concat([head, ...parts.flatMap((part) => [part, Buffer.from('B')])])
}

await describeServer('numbers of ZooKeeper', findOwnZooKeeper, (source) => {
  test.each([LAST - 3, LAST - 1, LAST])('a line whose last number was %i goes on in order', async (number) => {
    const log = logOf([
      { path: '/holdfast', childrenOfParent: 1 },
      { path: `/holdfast/${KEY}`, childrenOfParent: 1 },
      { path: `/holdfast/${KEY}/hf1-${'f'.repeat(32)}-1-1__lock__${number - 1}`, childrenOfParent: number },
    ])
    await using server = await ZooKeeperServer.start(source, { log, settings: ['snapshot.trust.empty=true'] })
    const engines: ZooKeeperEngine[] = []
    for (let made = 0; made < 3; made += 1) engines.push(await openZooKeeper(server.url))
    onTestFinished(async () => {
      for (const engine of engines) await engine[Symbol.asyncDispose]()
    })
    const [one, two, three] = engines as [ZooKeeperEngine, ZooKeeperEngine, ZooKeeperEngine]
    const claims = Array.from({ length: 9 }, () => newClaim(KEY))
    for (const [index, claim] of claims.entries()) {
      const [standing] = await (engines[index % 3] as ZooKeeperEngine).enter([claim])
      expect(standing).toMatchObject({ state: 'waiting', ahead: index + 1 })
    }
    const line = await one.inspect(KEY)
    expect(line.entries.slice(1).map(({ id }) => id)).toEqual(claims.map(({ id }) => id))
    expect(await two.leave([{ key: KEY, id: 'f'.repeat(32) }])).toEqual([true])
    let token = 0n
    for (const [index, claim] of claims.entries()) {
      const engine = engines[index % 3] as ZooKeeperEngine
      const [standing] = await engine.renew([claim])
      expect(standing?.state).toBe('held')
      expect((await three.inspect(KEY)).entries.filter(({ state }) => state === 'held')).toHaveLength(1)
      const next = standing?.state === 'held' ? (standing.token ?? 0n) : 0n
      expect(next).toBeGreaterThan(token)
      token = next
      await engine.leave([claim])
    }
  })
})
