/**
 * Entering lines. One transaction puts an entry, if its id is not there and not sealed. In an empty line it holds; else
 * the same transaction reads the front of the line, itself included: place and token in one round trip. If its id is
 * there already, it changes nothing: a request that was given up, and arrives after the next one, must not take the
 * entry with it under a lease that has been given up as well. What is there is renewed, which moves it with its eyes
 * open (renewing.ts).
 *
 * Many claims are one transaction of transactions, each decided for itself. Those of one line are not: what one
 * transaction creates has one revision, and a token belongs to one entry alone; they go one after the other, in their
 * order. Whoever does not want to wait (`wait: false`) enters only if the line is empty, or, in a second step, if
 * nobody has come since it was read and there is room: nobody ever sees an entry that does not wait.
 */

import type { EtcdClient } from '../../clients/etcd/client.ts'
import type {
  Compare,
  KeyRange,
  RangeRequest,
  RequestOp,
  ResponseHeader,
  TxnRequest,
  TxnResponse,
} from '../../clients/etcd/messages.ts'
import type { Clock } from '../../core/clock.ts'
import type { Claim, Standing } from '../../core/engine.ts'
import { LineFullError } from '../../core/errors.ts'
import { heldCount } from '../../core/line.ts'
import type { ClassLease, ClassLeases } from './class-lease.ts'
import { fault, isLeaseGone } from './errors.ts'
import { FRONT, type Lookout } from './lookout.ts'
import type { Entries } from './mine.ts'
import type { Names } from './names.ts'
import { rounds } from './rounds.ts'
import { type Front, frontOf, type Seat, written } from './stored.ts'

/** What all verbs work with. */
export interface Workplace {
  readonly client: EtcdClient
  readonly clock: Clock
  readonly names: Names
  readonly leases: ClassLeases
  readonly entries: Entries
  readonly lookout: Lookout
  /** Renew what is in a line already, and say where it stands. */
  readonly renewOne: (claim: Claim) => Promise<Standing>
}

/** How often leases are found to have ended under a transaction. */
const TRIES = 3
/** How often a try that found room is overtaken by others before it calls that busy. */
const LOOKS = 10
export const LINE_BOUND = 1_000

const isAbsent = (key: string): Compare => ({ key, target: 'create', result: 'equal', value: 0n })

const nobodyIn = ({ key, end }: Required<KeyRange>): Compare => ({
  key,
  end,
  target: 'version',
  result: 'equal',
  value: 0n,
})

/** One claim on its way. */
interface Asked {
  readonly claim: Claim
  readonly lease: ClassLease
  /** What it is called if the line is empty; else by its id. See names.ts. */
  readonly name: string
}

type Answered = { readonly answer: TxnResponse; readonly header: ResponseHeader }

export class Entering {
  readonly #at: Workplace

  constructor(workplace: Workplace) {
    this.#at = workplace
  }

  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    const startedAt = this.#at.clock.now()
    return claims.length === 1 ? this.#enterSome(claims, startedAt) : this.#enterAll(claims, startedAt)
  }

  async #enterAll(claims: readonly Claim[], startedAt: number): Promise<readonly Standing[]> {
    const standings = new Map<number, Standing>()
    for (const round of rounds(claims)) {
      await Promise.all(
        round.map(async (part) => {
          const asked = part.map((index) => claims[index] as Claim)
          const answers = await this.#enterSome(asked, startedAt)
          for (const [place, index] of part.entries()) standings.set(index, answers[place] as Standing)
        }),
      )
    }
    return claims.map((_, index) => standings.get(index) as Standing)
  }

  /** Claims of different lines, in one transaction. */
  async #enterSome(claims: readonly Claim[], startedAt: number): Promise<readonly Standing[]> {
    const { entries, leases } = this.#at
    for (const { id } of claims) entries.beginEntering(id)
    try {
      for (let attempt = 1; ; attempt += 1) {
        const asked = this.#atHand(claims) ?? (await this.#underLeases(claims))
        const used = leasesOf(asked)
        // Given up while we waited for another: it may be revoked at any moment, with whatever is put under it.
        if (used.some(({ tainted }) => tainted)) {
          if (attempt >= TRIES) throw fault(new Error('its leases are given up one after the other'), { sent: false })
          continue
        }
        leases.begin(used)
        try {
          const answers = await this.#send(
            asked.map((one) => this.#asTxn(one)),
            asked,
            used,
          )
          const standings = asked.map((one, index) => this.#standing(one, answers[index] as Answered, startedAt))
          // Most often there is nothing to wait for.
          return standings.every(isSettled)
            ? standings
            : await Promise.all(standings.map((standing) => Promise.resolve(standing)))
        } catch (error) {
          if (!isLeaseGone(error) || attempt === TRIES) throw error
        } finally {
          leases.end(used)
        }
        // Which one is gone, it does not say. Nothing was done.
        for (const lease of used) await leases.keepAlive(lease)
      }
    } catch (error) {
      const failed: Standing = { state: 'failed', error: fault(error) }
      return claims.map(() => failed)
    } finally {
      for (const { id } of claims) entries.endEntering(id)
    }
  }

  /** As usual: their leases are fresh. */
  #atHand(claims: readonly Claim[]): readonly Asked[] | undefined {
    const asked: Asked[] = []
    for (const claim of claims) {
      const lease = this.#at.leases.freshAtHand(claim.ttlMs)
      if (lease === undefined) return undefined
      asked.push(this.#asking(claim, lease))
    }
    return asked
  }

  /** Nothing is sent for a claim before it has a lease. */
  async #underLeases(claims: readonly Claim[]): Promise<readonly Asked[]> {
    try {
      return await Promise.all(
        claims.map(async (claim) => this.#asking(claim, await this.#at.leases.fresh(claim.ttlMs))),
      )
    } catch (error) {
      throw fault(error, { sent: false })
    }
  }

  #asking(claim: Claim, lease: ClassLease): Asked {
    return { claim, lease, name: this.#at.entries.nameFor(claim.key, claim.id) }
  }

  /** Send transactions as one, and see what their coming back says about the leases they use. */
  async #send(
    txns: readonly TxnRequest[],
    asked: readonly Asked[],
    used: readonly ClassLease[],
  ): Promise<readonly Answered[]> {
    const unconfirmed = used.map((lease) => lease.unconfirmed)
    const [only] = txns
    try {
      const whole = txns.length === 1 && only !== undefined ? only : { success: txns.map((txn) => ({ txn })) }
      const answer = await this.#at.client.txn(whole)
      const { header } = answer
      for (const [index, lease] of used.entries()) lease.confirm(unconfirmed[index], header.term)
      if (txns.length === 1) return [{ answer, header }]
      return answer.responses.map(({ txn }) => ({ answer: txn as TxnResponse, header }))
    } catch (error) {
      // They may be there, or arrive late. Their owner asks again, or takes them out; until then, nobody keeps them
      // alive.
      if (fault(error).outcome === 'unknown') for (const { claim, lease } of asked) this.#doubt(claim, lease)
      throw error
    }
  }

  #doubt({ id }: Claim, lease: ClassLease): void {
    this.#at.entries.doubt([id])
    lease.tenants.add(id)
    this.#at.leases.taint(lease)
  }

  #asTxn(asked: Asked): TxnRequest {
    const { claim, name } = asked
    return claim.wait ? this.#entering(asked) : this.#trying(asked, name, nobodyIn(this.#at.names.line(claim.key)))
  }

  #entering({ claim, lease, name }: Asked): TxnRequest {
    const { names } = this.#at
    const [line, entry, unsealed] = [
      names.line(claim.key),
      names.entry(claim.key, claim.id),
      isAbsent(names.seal(claim.key, claim.id)),
    ]
    const value = written(claim)
    const put = (key: string): RequestOp => ({ put: { key, value, lease: lease.id } })
    const behind: TxnRequest = {
      compare: [isAbsent(entry), unsealed],
      success: [put(entry), { range: front(line, claim) }],
    }
    return {
      compare: [nobodyIn(line), unsealed],
      success: [put(names.entry(claim.key, name))],
      failure: [{ txn: behind }],
    }
  }

  #trying({ claim, lease }: Asked, name: string, unless: Compare): TxnRequest {
    const { names } = this.#at
    const [line, entry, seal] = [
      names.line(claim.key),
      names.entry(claim.key, claim.id),
      names.seal(claim.key, claim.id),
    ]
    return {
      compare: [unless, isAbsent(seal)],
      success: [{ put: { key: names.entry(claim.key, name), value: written(claim), lease: lease.id } }],
      failure: [{ range: front(line, claim) }, { range: { key: entry } }, { range: { key: seal } }],
    }
  }

  #standing(asked: Asked, answered: Answered, startedAt: number): Standing | Promise<Standing> {
    if (answered.answer.succeeded) return this.#holds(asked, asked.name, answered.header.revision, startedAt)
    return this.#behind(asked, answered, startedAt).catch(failedAlone)
  }

  /** The line was not empty, or its id is sealed. */
  async #behind(asked: Asked, answered: Answered, startedAt: number): Promise<Standing> {
    const { claim } = asked
    const { answer, header } = answered
    if (!claim.wait) return await this.#tried(asked, answered, startedAt)
    const behind = answer.responses[0]?.txn
    if (behind?.succeeded !== true) return await this.#at.renewOne(claim)
    const front = frontIn(behind, 1)
    if (twinOf(claim, front) === undefined) return await this.#entered(asked, front, header.revision, startedAt)
    // It entered when the line was empty, and is there by another name.
    await this.#takeBack(claim, asked.lease)
    return await this.#at.renewOne(claim)
  }

  /** Is there room beside those who are in it? */
  async #tried(asked: Asked, answered: Answered, startedAt: number): Promise<Standing> {
    const { claim } = asked
    let { answer, header } = answered
    for (let attempt = 1; ; attempt += 1) {
      const front = frontIn(answer, 0)
      const there = answer.responses[1]?.range?.count !== 0 || twinOf(claim, front) !== undefined
      if (there || answer.responses[2]?.range?.count !== 0) return await this.#at.renewOne(claim)
      const room = front.count === front.seats.length && heldCount([...front.seats, claim]) > front.count
      if (!room || attempt > LOOKS) return { state: 'busy', ahead: front.count }
      const unchanged: Compare = {
        ...this.#at.names.line(claim.key),
        target: 'mod',
        result: 'less',
        value: header.revision + 1n,
      }
      const [next] = await this.#send([this.#trying(asked, claim.id, unchanged)], [asked], [asked.lease])
      ;({ answer, header } = next as Answered)
      if (answer.succeeded) return this.#holds(asked, claim.id, header.revision, startedAt)
    }
  }

  /** It stands in the line, created by this revision, and `front` is how the line looked then. */
  async #entered(asked: Asked, front: Front, token: bigint, startedAt: number): Promise<Standing> {
    const { claim, lease } = asked
    const { key, id, ttlMs } = claim
    const place = front.seats.findIndex((seat) => seat.id === id)
    const ahead = place < 0 ? front.count - 1 : place
    if (ahead >= LINE_BOUND) {
      await this.#takeBack(claim, lease)
      return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }
    }
    if (place >= 0 && place < front.held) return this.#holds(asked, id, token, startedAt)
    const mine = this.#at.entries.note({ key, id, name: id, token, lease, ttlMs, held: false })
    this.#at.lookout.waits(mine, front, token)
    return { state: 'waiting', ahead, livesForMs: Math.min(lease.leftMs(startedAt), ttlMs) }
  }

  #holds({ claim: { key, id, ttlMs }, lease }: Asked, name: string, token: bigint, startedAt: number): Standing {
    this.#at.entries.note({ key, id, name, token, lease, ttlMs, held: true })
    this.#at.lookout.forget(key, id)
    return { state: 'held', token, heldForMs: Math.min(lease.leftMs(startedAt), ttlMs) }
  }

  async #takeBack({ key, id }: Claim, lease: ClassLease): Promise<void> {
    try {
      await this.#at.client.txn({ success: [{ delete: { key: this.#at.names.entry(key, id) } }] })
    } catch {
      // It stands there until nobody keeps its lease alive any more.
      this.#at.leases.taint(lease)
    }
  }
}

/** As much of the line as it takes to know whether it holds. */
function front({ key, end }: Required<KeyRange>, { limit }: Claim): RangeRequest {
  return { key, end, oldestFirst: true, limit: limit > LINE_BOUND ? 0 : Math.max(FRONT, limit) }
}

/** Each once. */
function leasesOf(asked: readonly Asked[]): readonly ClassLease[] {
  const [only] = asked
  return asked.length === 1 && only !== undefined ? [only.lease] : [...new Set(asked.map(({ lease }) => lease))]
}

function isSettled(standing: Standing | Promise<Standing>): standing is Standing {
  return !(standing instanceof Promise)
}

/** What comes after the transaction concerns one claim; except that all of them may have lost their lease. */
function failedAlone(error: unknown): Standing {
  if (isLeaseGone(error)) throw error
  return { state: 'failed', error: fault(error) }
}

/** The same one by another name. It entered an empty line, so it stands in front. */
function twinOf({ id }: Claim, { seats }: Front): Seat | undefined {
  return seats.find((seat) => seat.id === id && seat.name !== id)
}

function frontIn({ responses }: TxnResponse, index: number): Front {
  return frontOf(responses[index]?.range ?? { kvs: [], count: 0 })
}
