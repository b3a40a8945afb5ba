/**
 * A request for an entry while another request for it is still under way: there are never two holders because of it,
 * and no entry is taken out for another. The engine's requests go to a real server, when the test says so.
 */

import { expect, test, vi } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import { GRPC_STATUS, RpcError } from '../../src/clients/etcd/errors.ts'
import type { Claim, Engine, Standing } from '../../src/core/engine.ts'
import type { EtcdEngine } from '../../src/engines/etcd/engine.ts'
import { newClaim } from '../claims.ts'
import { findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const TTL_MS = 3_000

type Question = Parameters<EtcdClient['call']>
type Fate = (send: () => Promise<Buffer>) => Promise<Buffer>

/** A request that is kept back. */
interface Kept {
  /** Resolves when it was asked; if it was sent, when it was answered. */
  readonly there: Promise<void>
  go(): void
}

/** A client of which some requests do not go the usual way: the next one to each of these services. */
class Wayward extends EtcdClient {
  readonly #fates = new Map<string, Fate>()

  override call(...question: Question): Promise<Buffer> {
    const service = question[0].slice(question[0].lastIndexOf('/') + 1)
    const fate = this.#fates.get(service)
    this.#fates.delete(service)
    return fate === undefined ? super.call(...question) : fate(() => super.call(...question))
  }

  loseReply(service: string): void {
    this.#fates.set(service, async (send) => {
      await send()
      throw new RpcError(GRPC_STATUS.deadlineExceeded, 'given up')
    })
  }

  lose(service: string): void {
    this.#fates.set(service, async () => {
      throw new RpcError(GRPC_STATUS.deadlineExceeded, 'given up')
    })
  }

  /** It is sent when told so, or, if it is `answered`, at once, and heard of when told so. */
  keep(service: string, what: 'request' | 'answer'): Kept {
    let [there, go]: [() => void, () => void] = [() => undefined, () => undefined]
    const kept = new Promise<void>((resolve) => {
      there = resolve
    })
    const gate = new Promise<void>((resolve) => {
      go = resolve
    })
    this.#fates.set(service, async (send) => {
      const answer = what === 'answer' ? await send() : undefined
      there()
      await gate
      return answer ?? (await send())
    })
    return { there: kept, go: () => go() }
  }
}

function claimOf(key: string): Claim {
  return newClaim(key, { ttlMs: TTL_MS })
}

await describeServer('etcd, overlapping', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  const open = (): { readonly client: Wayward; readonly engine: EtcdEngine } => scene.openOn(Wayward)

  async function idsIn(engine: Engine, key: string): Promise<readonly string[]> {
    return (await engine.inspect(key)).entries.map(({ id }) => id)
  }

  const tokenOf = (standing: Standing | undefined): bigint => {
    if (standing?.state !== 'held' || standing.token === null) throw new Error(`not held: ${standing?.state}`)
    return standing.token
  }

  test('two enters whose replies were lost leave one entry, and one holder', async () => {
    const [one, other] = [open(), open()]
    const [first, second] = [claimOf('twice'), claimOf('twice')]
    one.client.loseReply('Txn')
    await one.engine.enter([first])
    await other.engine.enter([second])
    one.client.loseReply('Txn')
    await one.engine.enter([first])
    const [standing] = await one.engine.enter([first])
    expect(standing?.state).toBe('held')
    await vi.waitFor(async () => expect(await idsIn(other.engine, 'twice')).toEqual([first.id, second.id]), LIMIT)
    const [renewed, waiting] = [await one.engine.renew([first]), await other.engine.renew([second])]
    expect([renewed[0]?.state, waiting[0]?.state]).toEqual(['held', 'waiting'])
    expect(tokenOf(renewed[0])).toBe(tokenOf(standing))
  })

  test('a leave that follows the late answer of an enter takes no other entry out', async () => {
    const [one, other] = [open(), open()]
    await one.engine.enter([claimOf('warm')])
    const [first, second] = [claimOf('late'), claimOf('late')]
    const late = one.client.keep('Txn', 'answer')
    const entering = one.engine.enter([first])
    await late.there
    expect(await one.engine.leave([first])).toEqual([true])
    tokenOf((await one.engine.enter([second]))[0])
    late.go()
    await entering
    await one.engine.leave([first])
    expect(await idsIn(other.engine, 'late')).toEqual([second.id])
  })

  test('nothing is put under a lease that was given up while its keep-alive was under way', async () => {
    const [one, other] = [open(), open()]
    const [leaving, entering] = [claimOf('given up: before'), claimOf('given up')]
    await one.engine.enter([leaving])
    // So that the next enter needs a keep-alive: with less than two thirds of it left, a lease is not fresh.
    const left = async (): Promise<number | undefined> =>
      (await other.engine.inspect(leaving.key)).entries[0]?.remainingMs
    await vi.waitFor(async () => expect(await left()).toBeLessThan((2 * TTL_MS) / 3), LIMIT)
    const keepAlive = one.client.keep('LeaseKeepAlive', 'answer')
    const entered = one.engine.enter([entering])
    await keepAlive.there
    one.client.lose('DeleteRange')
    const revoke = one.client.keep('LeaseRevoke', 'request')
    await expect(one.engine.leave([leaving])).rejects.toThrow()
    await revoke.there
    keepAlive.go()
    tokenOf((await entered)[0])
    revoke.go()
    await vi.waitFor(async () => expect(await idsIn(other.engine, leaving.key)).toEqual([]), LIMIT)
    expect(await idsIn(other.engine, 'given up')).toEqual([entering.id])
  })

  test('of two leaves of one entry the slower one takes no other entry out', async () => {
    const [one, other] = [open(), open()]
    const [first, second] = [claimOf('left twice'), claimOf('left twice')]
    await one.engine.enter([first])
    const slow = one.client.keep('DeleteRange', 'request')
    const leaving = one.engine.leave([first])
    await slow.there
    expect(await one.engine.leave([first])).toEqual([true])
    tokenOf((await one.engine.enter([second]))[0])
    slow.go()
    expect(await leaving).toEqual([false])
    expect(await idsIn(other.engine, 'left twice')).toEqual([second.id])
  })

  test('a leave that is overtaken by an eviction takes no other entry out', async () => {
    const [one, other] = [open(), open()]
    const [first, second] = [claimOf('evicted'), claimOf('evicted')]
    const token = tokenOf((await one.engine.enter([first]))[0])
    const slow = one.client.keep('DeleteRange', 'request')
    const leaving = one.engine.leave([first])
    await slow.there
    await other.engine.evict('evicted', token, 'now')
    expect((await one.engine.renew([first]))[0]?.state).toBe('gone')
    tokenOf((await one.engine.enter([second]))[0])
    slow.go()
    await leaving
    expect(await idsIn(other.engine, 'evicted')).toEqual([second.id])
  })
})
