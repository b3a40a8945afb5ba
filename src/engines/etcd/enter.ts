/**
 * Entering lines. One transaction puts an entry, if neither its id nor a marker of it is there. In an empty line it
 * holds. Else the same transaction reads the front of the line, the new entry included: place and token in one round
 * trip.
 *
 * If the id is there already, the transaction changes nothing: an enter that was given up, and arrives after the next
 * one, must not move the entry to a lease that has been given up as well. The entry that is there is renewed instead,
 * and renew.ts moves it only from where it was read.
 *
 * Many claims are one transaction of transactions, each decided for itself. Claims of one line go one after the other,
 * in their order: all that one transaction creates has one revision, and a token belongs to one entry alone. (So the
 * core gives us few of one line at once: they share the time limit of one call.) A claim
 * with `wait: false` enters only if the line is empty; or, in a second step, if there is room and no entry has come
 * since the line was read. So no other client ever sees an entry that does not wait.
 */

import type { RpcError } from '../../clients/etcd/errors.ts'
import type { ResponseHeader, TxnRequest, TxnResponse } from '../../clients/etcd/messages.ts'
import type { Claim, Standing } from '../../core/engine.ts'
import { EngineError, LineFullError } from '../../core/errors.ts'
import { failingAs } from '../../core/failed-call.ts'
import { heldCount } from '../../core/line.ts'
import {
  type EnterRequest,
  enterIfTxn,
  enterRounds,
  enterTxn,
  isEmptyLine,
  isUnchangedLine,
  LINE_BOUND,
  type LineFront,
  lineFrontIn,
} from './codec.ts'
import type { EtcdContext } from './context.ts'
import { asEngineError, ENGINE, isLeaseGone, isNoSpace } from './errors.ts'
import type { EtcdLease } from './leases.ts'

/** How often an enter is tried whose leases turn out to have ended, or are given up. */
const TRIES = 3
/** How often a claim with `wait: false` that found room may be overtaken by others. Then the line counts as busy. */
const LOOKS = 10

type LeasedRequest = EnterRequest<EtcdLease>

/** The response to the transaction of one claim. The header is that of the whole. */
interface EnterResponse {
  readonly txn: TxnResponse
  readonly header: ResponseHeader
}

export class EtcdEnterCalls {
  readonly #context: EtcdContext
  readonly #renew: (claims: readonly Claim[]) => Promise<readonly Standing[]>

  /** `renew` renews entries that are in a line already, and says where they stand. */
  constructor(context: EtcdContext, renew: (claims: readonly Claim[]) => Promise<readonly Standing[]>) {
    this.#context = context
    this.#renew = renew
  }

  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    const startedAt = this.#context.clock.now()
    return claims.length === 1 ? this.#enterTogether(claims, startedAt) : this.#enterAll(claims, startedAt)
  }

  async #enterAll(claims: readonly Claim[], startedAt: number): Promise<readonly Standing[]> {
    const standings = new Map<number, Standing>()
    for (const round of enterRounds(claims)) {
      await Promise.all(
        round.map(async (indexes) => {
          const together = indexes.map((index) => claims[index] as Claim)
          const answers = await this.#enterTogether(together, startedAt)
          for (const [place, index] of indexes.entries()) standings.set(index, answers[place] as Standing)
        }),
      )
    }
    return claims.map((_, index) => standings.get(index) as Standing)
  }

  /** Claims of different lines, in one transaction. */
  async #enterTogether(claims: readonly Claim[], startedAt: number): Promise<readonly Standing[]> {
    const { entries, leases } = this.#context
    for (const { id } of claims) entries.beginEntering(id)
    try {
      for (let attempt = 1; ; attempt += 1) {
        const requests = this.#requestsAtOnce(claims) ?? (await this.#requestsWithLeases(claims))
        const used = leasesOf(requests)
        // A lease was given up while we waited for another: it may be revoked at any moment, with all that is under it.
        if (used.some(({ tainted }) => tainted)) {
          if (attempt >= TRIES)
            throw asEngineError('enter', new Error('leases are given up again and again'), { outcome: 'not-applied' })
          continue
        }
        leases.beginUse(used)
        try {
          const txns = requests.map((request) => this.#txnOf(request))
          const responses = await this.#send(txns, requests, used)
          const standings = requests.map((request, index) =>
            this.#standing(request, responses[index] as EnterResponse, startedAt),
          )
          // Most often no further request is needed.
          return standings.every(isSettled)
            ? standings
            : await Promise.all(standings.map((standing) => Promise.resolve(standing)))
        } catch (error) {
          if (isNoSpace(error)) return await this.#findAfterNoSpace(requests, error)
          if (!isLeaseGone(error) || attempt === TRIES) throw error
        } finally {
          leases.endUse(used)
        }
        // Nothing was applied. The server does not say which lease has ended: a keep-alive of each finds out.
        for (const lease of used) await leases.keepAlive(lease)
      }
    } catch (error) {
      const failed: Standing = { state: 'failed', error: asEngineError('enter', error) }
      return claims.map(() => failed)
    } finally {
      for (const { id } of claims) entries.endEntering(id)
    }
  }

  /** The usual case: fresh leases are at hand. */
  #requestsAtOnce(claims: readonly Claim[]): readonly LeasedRequest[] | undefined {
    const requests: LeasedRequest[] = []
    for (const claim of claims) {
      const lease = this.#context.leases.freshAtHand(claim.ttlMs)
      if (lease === undefined) return undefined
      requests.push(this.#request(claim, lease))
    }
    return requests
  }

  async #requestsWithLeases(claims: readonly Claim[]): Promise<readonly LeasedRequest[]> {
    const { leases } = this.#context
    const requests = claims.map(async (claim) => this.#request(claim, await leases.fresh(claim.ttlMs)))
    // No claim is sent before it has a lease.
    return await failingAs(asEngineError, 'enter', Promise.all(requests), { outcome: 'not-applied' })
  }

  #request(claim: Claim, lease: EtcdLease): LeasedRequest {
    return { claim, lease, name: this.#context.entries.nameFor(claim.key, claim.id) }
  }

  #txnOf(request: LeasedRequest): TxnRequest {
    const { names } = this.#context
    const { wait, key } = request.claim
    return wait ? enterTxn(names, request) : enterIfTxn(names, request, isEmptyLine(names.line(key)))
  }

  /** Send transactions as one. Its response also confirms keep-alives of the leases that it uses. */
  async #send(
    txns: readonly TxnRequest[],
    requests: readonly LeasedRequest[],
    used: readonly EtcdLease[],
  ): Promise<readonly EnterResponse[]> {
    const unconfirmed = used.map((lease) => lease.unconfirmed)
    const [only] = txns
    try {
      const whole = txns.length === 1 && only !== undefined ? only : { success: txns.map((txn) => ({ txn })) }
      const response = await this.#context.client.txn(whole)
      const { header } = response
      for (const [index, lease] of used.entries()) lease.confirm(unconfirmed[index], header.term)
      if (txns.length === 1) return [{ txn: response, header }]
      return response.responses.map(({ txn }) => ({ txn: txn as TxnResponse, header }))
    } catch (error) {
      // The entries may be there, or arrive late. The core enters them again, or takes them out. Until then they must
      // not be kept alive.
      if (asEngineError('enter', error).outcome === 'unknown' && !isNoSpace(error))
        for (const { claim, lease } of requests) this.#doubt(claim, lease)
      throw error
    }
  }

  #doubt({ id }: Claim, lease: EtcdLease): void {
    this.#context.entries.doubtEnter(id)
    lease.entryIds.add(id)
    this.#context.leases.taint(lease)
  }

  #standing(request: LeasedRequest, response: EnterResponse, startedAt: number): Standing | Promise<Standing> {
    if (response.txn.succeeded) return this.#holds(request, request.name, response.header.revision, startedAt)
    return this.#behind(request, response, startedAt).catch(async (error: unknown) => {
      if (!isNoSpace(error)) return failedAlone(error)
      const [standing] = await this.#findAfterNoSpace([request], error)
      return standing as Standing
    })
  }

  /**
   * The database is full, and the server does not say whether it has put the entries before it noticed. But nothing is
   * under way any more: what is not in its line now was not put. So no lease is given up. It could not be replaced,
   * and all other entries under it would be lost.
   */
  async #findAfterNoSpace(requests: readonly LeasedRequest[], error: RpcError): Promise<readonly Standing[]> {
    const refused: Standing = { state: 'failed', error: asEngineError('enter', error, { outcome: 'not-applied' }) }
    const standings = await this.#renew(requests.map(({ claim }) => claim))
    return requests.map(({ claim, lease }, index) => {
      const standing = standings[index] as Standing
      if (standing.state === 'gone' && standing.why !== 'evicted') return refused
      if (standing.state !== 'failed') return standing
      this.#doubt(claim, lease)
      return { state: 'failed', error: asEngineError('enter', error) }
    })
  }

  async #renewOne(claim: Claim): Promise<Standing> {
    const [standing] = await this.#renew([claim])
    return standing as Standing
  }

  /** The line was not empty, or the entry has a marker. */
  async #behind(request: LeasedRequest, response: EnterResponse, startedAt: number): Promise<Standing> {
    const { claim } = request
    const { txn, header } = response
    if (!claim.wait) return await this.#enterIfRoom(request, response, startedAt)
    const behind = txn.responses[0]?.txn
    if (behind?.succeeded !== true) return await this.#renewOne(claim)
    const front = lineFrontIn(behind, 1)
    if (isThereByAnotherName(claim, front)) {
      await this.#takeBack(claim, request.lease)
      return await this.#renewOne(claim)
    }
    return await this.#entered(request, front, header.revision, startedAt)
  }

  /** For `wait: false`, in a line that is not empty: enter if there is room beside the entries that are in it. */
  async #enterIfRoom(request: LeasedRequest, response: EnterResponse, startedAt: number): Promise<Standing> {
    const { claim, lease } = request
    const { names } = this.#context
    let { txn, header } = response
    for (let attempt = 1; ; attempt += 1) {
      const front = lineFrontIn(txn, 0)
      const isThere = txn.responses[1]?.range?.count !== 0 || isThereByAnotherName(claim, front)
      const isMarked = txn.responses[2]?.range?.count !== 0
      if (isThere || isMarked) return await this.#renewOne(claim)
      if (front.stranger !== undefined) throw front.stranger
      const hasRoom = front.count === front.entries.length && heldCount([...front.entries, claim]) > front.count
      if (!hasRoom || attempt > LOOKS) return { state: 'busy', ahead: front.count }
      const unchanged = isUnchangedLine(names.line(claim.key), header.revision)
      const again = enterIfTxn(names, { ...request, name: claim.id }, unchanged)
      const [next] = await this.#send([again], [request], [lease])
      ;({ txn, header } = next as EnterResponse)
      if (txn.succeeded) return this.#holds(request, claim.id, header.revision, startedAt)
    }
  }

  /** The entry is in the line, created by the revision `token`; `front` is how the line looked then. */
  async #entered(request: LeasedRequest, front: LineFront, token: bigint, startedAt: number): Promise<Standing> {
    const { claim, lease } = request
    const { key, id, ttlMs } = claim
    const place = front.entries.findIndex((entry) => entry.id === id)
    if (place < 0 && front.stranger !== undefined) {
      // It would stand behind a key that may hold the line, by rules that we do not know.
      const outcome = (await this.#takeBack(claim, lease)) ? 'not-applied' : 'unknown'
      throw new EngineError(ENGINE, front.stranger.message, { outcome, transient: false })
    }
    const ahead = place < 0 ? front.count - 1 : place
    if (ahead >= LINE_BOUND) {
      await this.#takeBack(claim, lease)
      return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }
    }
    if (place >= 0 && place < front.held) return this.#holds(request, id, token, startedAt)
    const entry = this.#context.entries.record({ key, id, name: id, token, lease, ttlMs, held: false })
    this.#context.evictions.watchFrom(token)
    this.#context.watcher.addWaiter(entry, front, token)
    return { state: 'waiting', ahead, livesForMs: Math.min(lease.leftMs(startedAt), ttlMs) }
  }

  #holds({ claim, lease }: LeasedRequest, name: string, token: bigint, startedAt: number): Standing {
    const { key, id, ttlMs } = claim
    this.#context.entries.record({ key, id, name, token, lease, ttlMs, held: true })
    this.#context.evictions.watchFrom(token)
    this.#context.watcher.removeWaiter(key, id)
    return { state: 'held', token, heldForMs: Math.min(lease.leftMs(startedAt), ttlMs) }
  }

  /** Answers whether the entry has surely gone. */
  async #takeBack({ key, id }: Claim, lease: EtcdLease): Promise<boolean> {
    try {
      await this.#context.client.txn({ success: [{ delete: { key: this.#context.names.entry(key, id) } }] })
      return true
    } catch {
      // The entry may stand there. It must not be kept alive.
      this.#context.leases.taint(lease)
      return false
    }
  }
}

/** Each lease once. */
function leasesOf(requests: readonly LeasedRequest[]): readonly EtcdLease[] {
  const [only] = requests
  return requests.length === 1 && only !== undefined ? [only.lease] : [...new Set(requests.map(({ lease }) => lease))]
}

function isSettled(standing: Standing | Promise<Standing>): standing is Standing {
  return !(standing instanceof Promise)
}

/** A request after the transaction concerns one claim, and fails alone. A lease that has ended concerns all claims. */
function failedAlone(error: unknown): Standing {
  if (isLeaseGone(error)) throw error
  return { state: 'failed', error: asEngineError('enter', error) }
}

/** An earlier enter of this id found the line empty, so its entry stands in front, under the name of this engine. */
function isThereByAnotherName({ id }: Claim, { entries }: LineFront): boolean {
  return entries.some((entry) => entry.id === id && entry.name !== id)
}
