/**
 * The rule of `replace`, in random traces, against code that does it the obvious way: a ledger that remembers every
 * upload. Calls that were superseded go on trying, as a process does that was stopped and wakes. Rules with a defect
 * are noticed.
 */
import { deepEqual, equal, ok } from 'node:assert/strict'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import * as rule from '../../src/recipes/replace/record.ts'

type Rules = Pick<
  typeof rule,
  'acceptUpload' | 'storeBatch' | 'publishUpload' | 'retiredGenerations' | 'withRemoved' | 'abandonUpload'
>

type Step =
  | { readonly do: 'accept'; readonly upload: string | undefined; readonly order: number | undefined }
  /** `again`: the answer to the last one was lost, and the call does it once more. */
  | { readonly do: 'batch'; readonly call: number; readonly again: boolean }
  | { readonly do: 'publish' | 'abandon'; readonly call: number }
  | { readonly do: 'remove'; readonly limit: number }

const oneOf = <Value>(...values: readonly Value[]): fc.Arbitrary<Value> => fc.constantFrom(...values)
/** Mostly one of the last calls. */
const call = fc.oneof(fc.nat(2), fc.nat(8))

const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('accept' as const),
        upload: oneOf('a', 'b', 'c', 'd', undefined),
        order: oneOf(undefined, undefined, 1, 2, 3, 4),
      }),
    },
    { weight: 5, arbitrary: fc.record({ do: fc.constant('batch' as const), call, again: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('publish' as const), call }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('abandon' as const), call }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('remove' as const), limit: fc.integer({ min: 1, max: 3 }) }) },
  ),
  { minLength: 5, maxLength: 60 },
)

/** An upload, as the ledger knows it. */
interface Entry {
  readonly name: string | undefined
  readonly generation: number
  stored: number
}

/** A call that was accepted: what the rule has told it, and the upload that it is for. */
interface Caller extends rule.Uploader {
  readonly entry: Entry
  /** How many batches it believes to be stored. */
  believes: number
}

/** The rows, and all that ever happened. */
class Ledger {
  readonly #rules: Rules
  #record: rule.ReplaceRecord = rule.NO_UPLOADS
  /** Batches by generation: whose they are, and which. */
  readonly #rows = new Map<number, { readonly entry: Entry; readonly number: number }[]>()
  readonly #callers: Caller[] = []
  readonly #over = new Set<string>()
  #highestOrder: number | undefined
  #highestGeneration = 0
  /** The one that may write. */
  #current: Caller | undefined
  /** What readers see. */
  #published: Entry | undefined

  constructor(rules: Rules) {
    this.#rules = rules
  }

  play(step: Step): void {
    if (step.do === 'accept') this.#accept(step.upload, step.order)
    else if (step.do === 'remove') this.#remove(step.limit)
    else {
      const caller = this.#callers.at(-1 - step.call)
      if (caller === undefined) return
      if (step.do === 'batch') this.#batch(caller, step.again)
      else if (step.do === 'publish') this.#publish(caller)
      else this.#abandon(caller)
    }
    // A record is stored as JSON.
    this.#record = JSON.parse(JSON.stringify(this.#record)) as rule.ReplaceRecord
  }

  /** Remove all that is waste. */
  finish(): void {
    for (let most = 200; this.#remove(2) > 0; most -= 1) ok(most > 0, 'removing comes to an end')
    const left = [...this.#rows.keys()].filter((generation) => (this.#rows.get(generation) ?? []).length > 0)
    const may = [this.#published?.generation, this.#current?.entry.generation]
    ok(
      left.every((generation) => may.includes(generation)),
      'only rows of what is published, or going on, are left',
    )
  }

  #accept(upload: string | undefined, order: number | undefined): void {
    const by = `call ${this.#callers.length}`
    const accepted = this.#rules.acceptUpload(this.#record, { by, upload, order, wins: true })
    const isCurrent = upload !== undefined && upload === this.#current?.entry.name
    const isTooLow =
      order !== undefined &&
      this.#highestOrder !== undefined &&
      (order < this.#highestOrder || (order === this.#highestOrder && !isCurrent))
    if (upload !== undefined && upload === this.#published?.name) {
      equal(accepted.state, 'published', 'a retry of what is published is answered')
      return
    }
    if ((upload !== undefined && this.#over.has(upload)) || isTooLow) {
      equal(accepted.state, 'superseded', 'an upload that is older than another one is refused')
      return
    }
    ok(accepted.state === 'accepted', 'the newest one is accepted')
    this.#record = accepted.record
    const { generation, stored } = accepted.live
    if (isCurrent) {
      equal(generation, this.#current?.entry.generation, 'a resumed upload keeps its generation')
      equal(stored, this.#current?.entry.stored, 'a resumed upload knows what is stored')
    } else {
      ok(generation > this.#highestGeneration, 'generations rise')
      this.#end(this.#current?.entry)
    }
    this.#highestGeneration = Math.max(this.#highestGeneration, generation)
    this.#highestOrder = order ?? this.#highestOrder
    const entry = isCurrent ? (this.#current?.entry as Entry) : { name: upload, generation, stored: 0 }
    this.#current = { by, generation, entry, believes: stored }
    this.#callers.push(this.#current)
  }

  #batch(caller: Caller, again: boolean): void {
    const number = again && caller.believes > 0 ? caller.believes : caller.believes + 1
    const verdict = this.#rules.storeBatch(this.#record, caller, number)
    if (caller !== this.#current) {
      equal(verdict.state, 'superseded', 'a call that was superseded does not write')
      return
    }
    if (number <= caller.entry.stored) {
      equal(verdict.state, 'stored', 'a batch is stored once')
      return
    }
    ok(verdict.state === 'store', 'the newest call writes')
    this.#record = verdict.record
    const { generation, entry } = caller
    this.#rows.set(generation, [...(this.#rows.get(generation) ?? []), { entry, number }])
    entry.stored += 1
    caller.believes = number
  }

  #publish(caller: Caller): void {
    const verdict = this.#rules.publishUpload(this.#record, caller)
    if (this.#published === caller.entry) {
      equal(verdict.state, 'stored', 'what is published is published once')
      return
    }
    if (caller !== this.#current) {
      equal(verdict.state, 'superseded', 'a call that was superseded does not publish')
      return
    }
    ok(verdict.state === 'store', 'the newest call publishes')
    this.#record = verdict.record
    this.#end(this.#published)
    this.#published = caller.entry
    this.#current = undefined
    this.#checkReaders()
  }

  #abandon(caller: Caller): void {
    const next = this.#rules.abandonUpload(this.#record, caller)
    equal(next !== undefined, caller === this.#current, 'the call that may write gives up')
    if (next === undefined) return
    this.#record = next
    this.#end(caller.entry)
    this.#current = undefined
  }

  #remove(limit: number): number {
    const retired = this.#rules.retiredGenerations(this.#record, limit)
    ok(retired.length <= limit, 'not more than asked for')
    for (const generation of retired) {
      ok(generation !== this.#published?.generation, 'what readers see stays')
      ok(generation !== this.#current?.generation, 'what is going on stays')
      this.#rows.delete(generation)
    }
    this.#record = this.#rules.withRemoved(this.#record, retired)
    this.#checkReaders()
    return retired.length
  }

  #end(entry: Entry | undefined): void {
    if (entry?.name !== undefined) this.#over.add(entry.name)
  }

  /** Readers see all rows of one upload, each once, and no others. */
  #checkReaders(): void {
    const entry = this.#published
    if (entry === undefined) return
    const seen = this.#rows.get(this.#record.published?.generation ?? 0) ?? []
    deepEqual(
      seen,
      Array.from({ length: entry.stored }, (_, index) => ({ entry, number: index + 1 })),
      'readers see one upload, and all of it',
    )
  }
}

function check(rules: Rules, parameters: { readonly numRuns: number; readonly seed?: number }): void {
  fc.assert(
    fc.property(steps, (all) => {
      const ledger = new Ledger(rules)
      for (const step of all) ledger.play(step)
      ledger.finish()
    }),
    parameters,
  )
}

test('random uploads, attempts and wake-ups: the newest one writes, and readers see one of them', () => {
  check(rule, { numRuns: 5_000 })
})

/** As if this call were the one that may write. */
const asCurrent = (record: rule.ReplaceRecord, { by, generation }: rule.Uploader): rule.ReplaceRecord => ({
  ...record,
  live: { stored: 0, ...record.live, generation, by },
})

let ticks = 0
const mutants: Readonly<Record<string, Partial<Rules>>> = {
  'publishing without a fence': {
    publishUpload: (record, uploader) => rule.publishUpload(asCurrent(record, uploader), uploader),
  },
  'batches without a fence': {
    storeBatch: (record, uploader, number) => rule.storeBatch(asCurrent(record, uploader), uploader, number),
  },
  'generations by the time': {
    acceptUpload: (record, claim) => {
      ticks += 1
      return rule.acceptUpload({ ...record, latest: Math.floor(ticks / 2) }, claim)
    },
  },
  'going on with an upload that was superseded': {
    acceptUpload: (record, claim) => rule.acceptUpload({ ...record, past: [] }, claim),
  },
  'a resumed upload that begins anew': {
    acceptUpload: (record, claim) => {
      const accepted = rule.acceptUpload(record, claim)
      return accepted.state === 'accepted' ? { ...accepted, live: { ...accepted.live, stored: 0 } } : accepted
    },
  },
  'numbers that are not compared': {
    acceptUpload: (record, claim) => rule.acceptUpload({ ...record, order: undefined }, claim),
  },
  'removing what is going on': {
    retiredGenerations: (record, most) => rule.retiredGenerations({ ...record, live: undefined }, most),
  },
  'removing what is published': {
    retiredGenerations: (record, most) => rule.retiredGenerations({ ...record, published: undefined }, most),
  },
  'forgetting rows that were published before': {
    publishUpload: (record, uploader) => {
      const verdict = rule.publishUpload(record, uploader)
      if (verdict.state !== 'store') return verdict
      return { state: 'store', record: { ...verdict.record, removedTo: record.removedTo } }
    },
  },
}

describe('a rule with this defect is noticed', () => {
  test.each(Object.keys(mutants))('%s', (name) => {
    expect(() => check({ ...rule, ...mutants[name] }, { numRuns: 5_000, seed: 1 })).toThrow()
  })
})

test('an upload that waits is refused if one that does not wait came after it', () => {
  const claim = (by: string, wins: boolean, wonBefore?: number): rule.UploadClaim => ({ by, wins, wonBefore })
  const waiting = rule.acceptUpload(rule.NO_UPLOADS, claim('first', false, 0))
  ok(waiting.state === 'accepted')
  const winner = rule.acceptUpload(waiting.record, claim('winner', true))
  ok(winner.state === 'accepted')
  expect(rule.acceptUpload(winner.record, claim('came before', false, 0)).state).toBe('superseded')
  expect(rule.acceptUpload(winner.record, claim('came after', false, 2)).state).toBe('accepted')
})

test('a record has room for as many uploads as it remembers', () => {
  let record = rule.NO_UPLOADS
  for (let number = 0; number < 2 * rule.MOST_PAST; number += 1) {
    const accepted = rule.acceptUpload(record, {
      by: 'a'.repeat(40),
      upload: String(number).padEnd(254, '.'),
      order: Number.MAX_SAFE_INTEGER - 1_000 + number,
      wins: true,
    })
    ok(accepted.state === 'accepted')
    record = accepted.record
  }
  expect(record.past).toHaveLength(rule.MOST_PAST)
  expect(JSON.stringify(record).length).toBeLessThan(40_000)
})

test('an upload is published when all its batches are stored', () => {
  const accepted = rule.acceptUpload(rule.NO_UPLOADS, { by: 'me', wins: true })
  ok(accepted.state === 'accepted')
  expect(rule.publishUpload(accepted.record, accepted.live, 1)).toEqual({ state: 'gap', stored: 0 })
  expect(rule.storeBatch(accepted.record, accepted.live, 2)).toEqual({ state: 'gap', stored: 0 })
})
