/**
 * Requests to etcd that arrive after they were given up, and replies that never come, in exactly the order that would
 * hurt: what is asked by the engine is kept back here, and sent to a real server when the test says so.
 */

import { expect, test, vi } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import { GRPC_STATUS, RpcError } from '../../src/clients/etcd/errors.ts'
import type { Claim, Standing } from '../../src/core/engine.ts'
import type { EtcdEngine } from '../../src/engines/etcd/engine.ts'
import { newClaim } from '../claims.ts'
import { findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const TTL_MS = 3_000

type Question = Parameters<EtcdClient['call']>

/** A client whose next transaction or deletion does not go the usual way. */
class Wayward extends EtcdClient {
  #fate: ((...question: Question) => Promise<Buffer>) | undefined

  override call(...question: Question): Promise<Buffer> {
    const fate = question[0].startsWith('/etcdserverpb.KV/') ? this.#fate : undefined
    if (fate === undefined) return super.call(...question)
    this.#fate = undefined
    return fate(...question)
  }

  /** It is given up without an answer. Whether and when it arrives is up to the caller. */
  loseNext(): { arrive(): Promise<unknown> } {
    let lost: Question | undefined
    this.#fate = async (...question) => {
      lost = question
      throw new RpcError(GRPC_STATUS.deadlineExceeded, 'given up')
    }
    return { arrive: () => super.call(...(lost as Question)) }
  }

  /** It is applied, and its reply is lost. */
  loseNextReply(): void {
    this.#fate = async (...question) => {
      await super.call(...question)
      throw new RpcError(GRPC_STATUS.deadlineExceeded, 'given up')
    }
  }

  /** It is done, and answered when `then` has ended. */
  delayNextReply(then: () => Promise<unknown>): void {
    this.#fate = async (...question) => {
      const answer = await super.call(...question)
      await then()
      return answer
    }
  }
}

function claimOf(key: string): Claim {
  return newClaim(key, { ttlMs: TTL_MS })
}

await describeServer('etcd, late', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  const open = (): { readonly client: Wayward; readonly engine: EtcdEngine } => scene.openOn(Wayward)

  const unknown = { state: 'failed', error: { outcome: 'unknown' } }

  async function only(standings: Promise<readonly Standing[]>): Promise<Standing> {
    const [standing] = await standings
    return standing as Standing
  }

  async function leaseOf({ key, id }: Claim): Promise<bigint | undefined> {
    const { kvs } = await scene.direct.range({ key: `holdfast/line/${key}/`, end: `holdfast/line/${key}0` })
    return kvs.find(({ value }) => value.includes(id))?.lease
  }

  /**
   * It holds what it held, under the lease that this engine keeps alive: the one under which it puts new entries.
   */
  async function livesOn(engine: EtcdEngine, claim: Claim, before: Standing): Promise<void> {
    const token = before.state === 'held' ? before.token : undefined
    const next = claimOf('a newcomer')
    await engine.enter([next])
    expect(await only(engine.renew([claim]))).toMatchObject({ state: 'held', token })
    expect(await leaseOf(claim)).toBe(await leaseOf(next))
    await engine.leave([next])
  }

  test('an enter that arrives after the next one does not take the entry with it under the lease that was given up', async () => {
    const { engine, client } = open()
    // Another entry is under that lease, so that it is not revoked at once.
    const [neighbour, claim] = [claimOf('neighbour of late enter'), claimOf('late enter')]
    await engine.enter([neighbour])
    const first = client.loseNext()
    expect(await only(engine.enter([claim]))).toMatchObject(unknown)
    const held = await only(engine.enter([claim]))
    expect(held.state).toBe('held')
    const home = await leaseOf(claim)
    await first.arrive().catch(() => undefined)
    expect(await leaseOf(claim)).toBe(home)
    await livesOn(engine, claim, held)
  })

  test('a move that arrives late moves nothing', async () => {
    const { engine, client } = open()
    const [claim, lost] = [claimOf('late move'), claimOf('taints the lease')]
    const held = await only(engine.enter([claim]))
    client.loseNext()
    await engine.enter([lost])
    await engine.leave([lost])
    // Its lease is tainted: the next renewal reads, and moves it.
    const moves = { arrive: async (): Promise<unknown> => undefined }
    client.delayNextReply(async () => Object.assign(moves, client.loseNext()))
    expect(await only(engine.renew([claim]))).toMatchObject(unknown)
    client.loseNext()
    await engine.enter([claimOf('taints the next one, too')])
    expect(await only(engine.renew([claim]))).toMatchObject({ state: 'held' })
    const home = await leaseOf(claim)
    await moves.arrive().catch(() => undefined)
    expect(await leaseOf(claim)).toBe(home)
    await livesOn(engine, claim, held)
  })

  test('a lease is not revoked under an entry that is just moving in', async () => {
    const { engine, client } = open()
    const [claim, lost] = [claimOf('moving in'), claimOf('taints its old lease')]
    const held = await only(engine.enter([claim]))
    client.loseNext()
    await engine.enter([lost])
    await engine.leave([lost])
    // The answer to the move is late, and meanwhile the new lease is given up, too, by an enter of unknown outcome that
    // is then taken back.
    client.delayNextReply(async () =>
      client.delayNextReply(async () => {
        const other = claimOf('taints its new lease')
        client.loseNext()
        await engine.enter([other])
        await engine.leave([other])
      }),
    )
    expect(await only(engine.renew([claim]))).toMatchObject({ state: 'held' })
    // Had it been revoked, it would be by the time another one is.
    await scene.direct.revoke((await scene.direct.grant(60)).lease)
    await livesOn(engine, claim, held)
  })

  test('a move whose reply is lost costs nothing: the entry is found where it is', async () => {
    const { engine, client } = open()
    const [claim, lost] = [claimOf('lost move'), claimOf('taints')]
    const held = await only(engine.enter([claim]))
    client.loseNext()
    await engine.enter([lost])
    await engine.leave([lost])
    client.delayNextReply(async () => client.loseNextReply())
    expect(await only(engine.renew([claim]))).toMatchObject(unknown)
    await livesOn(engine, claim, held)
  })

  test('an enter whose reply is lost keeps its place, though no other entry is under its lease', async () => {
    const [{ engine, client }, { engine: other }] = [open(), open()]
    const [holder, claim, behind] = [claimOf('place'), claimOf('place'), claimOf('place')]
    await other.enter([holder])
    client.loseNextReply()
    expect(await only(engine.enter([claim]))).toMatchObject(unknown)
    await other.enter([behind])
    expect(await only(engine.enter([claim]))).toMatchObject({ state: 'waiting', ahead: 1 })
  })

  test('an enter that was given up, taken back, and arrives after that is not let in', async () => {
    const { engine, client } = open()
    const claim = claimOf('taken back')
    const first = client.loseNext()
    expect(await only(engine.enter([claim]))).toMatchObject(unknown)
    expect(await engine.leave([claim])).toEqual([false])
    await vi.waitFor(async () => await expect(first.arrive()).rejects.toThrow(/lease not found/), LIMIT)
    expect((await engine.inspect(claim.key)).entries).toEqual([])
  })

  test('a leave whose reply is lost has been done, and what lived under the same lease lives on', async () => {
    const { engine, client } = open()
    const [claim, neighbour] = [claimOf('left'), claimOf('stays')]
    await engine.enter([claim])
    const held = await only(engine.enter([neighbour]))
    client.loseNextReply()
    await expect(engine.leave([claim])).rejects.toMatchObject({ outcome: 'unknown' })
    expect(await engine.leave([claim])).toEqual([false])
    await livesOn(engine, neighbour, held)
  })
})
