/**
 * One batch of keys, asked for on all nodes at once: the steps between the question and the verdict.
 *
 *     ask all ──► granted ──────────────────────────────────► held      (mend the nodes that have another number, or nothing)
 *        │  └───► raise the numbers ──► granted
 *        └──────► failed ──► take back what was taken ──────► waiting, busy, gone, or failed
 *
 * It is decided as soon as it is certain: a node that does not answer is not waited for if the others decide, and for
 * `timeoutMs` at most if they do not. What a node answers later is looked at all the same: what has come too late is
 * given back there, or mended if it is held meanwhile.
 */
import type { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Chance, Clock, Timer } from '../../core/clock.ts'
import type { Standing } from '../../core/engine.ts'
import { outrun, unanswered, unusable } from './errors.ts'
import type { Answer, Node, Question } from './node.ts'
import type { Outbox } from './outbox.ts'
import { type Stay, type Stays, validUntil } from './stay.ts'
import { isSilent, majorityOf, type Summary, summaryOf, verdict, verdictOnHolder } from './verdict.ts'

export interface Surroundings {
  readonly nodes: readonly Node[]
  readonly clock: Clock
  readonly chance: Chance
  readonly timeoutMs: number
  readonly limits: CallLimits
  readonly outbox: Outbox
  readonly stays: Stays
}

/** What came of one question. `summary` tells those who wait when to look again. */
export interface Result {
  readonly standing: Standing
  readonly summary?: Summary
}

interface Item {
  readonly question: Question
  readonly stay: Stay
  readonly answers: (Answer | undefined)[]
  /** A count that a node has named when it refused to raise a number. */
  floor: number
  state: 'asked' | 'taking back' | 'decided'
  result: Result | undefined
}

const GONE: Standing = { state: 'gone', why: 'unknown' }
/** How long after its answer a node may be mended, in time-outs: one to decide, one to get there, and as much again. */
const MEND_TIMEOUTS = 4

export class Asking {
  readonly #around: Surroundings
  readonly #items: readonly Item[]
  readonly #done: (results: readonly Result[]) => void
  readonly #sentAt: number
  #undecided: number
  /** How many nodes have been asked and have not answered. */
  #asked = 0
  #forgotten = false
  #timer: Timer | undefined

  /** `stays` are those of the questions, one by one. */
  constructor(
    around: Surroundings,
    questions: readonly Question[],
    stays: readonly Stay[],
    done: (results: readonly Result[]) => void,
  ) {
    this.#around = around
    this.#done = done
    this.#undecided = questions.length
    this.#sentAt = around.clock.now()
    const silent: Answer = { why: 'silent' }
    const none = around.nodes.map((node) => (node.ready ? undefined : silent))
    this.#items = questions.map((question, index) => {
      const stay = stays[index] as Stay
      stay.unanswered += 1
      stay.ttlMs = Math.max(stay.ttlMs, question.ttlMs)
      return { question, stay, answers: none.slice(), floor: 0, state: 'asked', result: undefined }
    })
    for (const [index, node] of around.nodes.entries()) {
      if (none[index] !== undefined) continue
      this.#asked += 1
      for (const { asked } of stays) asked[index] = true
      node.ask(questions, (answers, error) => {
        this.#asked -= 1
        this.#heard(index, answers, error)
      })
    }
    this.#timer = around.limits.start(around.timeoutMs, () => this.#timeUp(), this.#sentAt)
    this.#judge()
  }

  #heard(node: number, answers: readonly Answer[] | undefined, error: Error | undefined): void {
    for (let index = 0; index < this.#items.length; index += 1) {
      const item = this.#items[index] as Item
      const answer =
        answers?.[index] ?? (error === undefined ? { why: 'silent' as const } : { why: 'silent' as const, error })
      // Whoever has left does not wait for the verdict.
      if (item.state === 'asked' && !item.stay.left) item.answers[node] = answer
      else this.#heardLate(item, node, answer)
    }
    if (answers !== undefined) this.#around.outbox.settle(node)
    this.#judge()
    this.#forget()
  }

  /** The answer has come after the decision. */
  #heardLate({ question, stay }: Item, node: number, answer: Answer): void {
    const { outbox, clock } = this.#around
    const { key, id, ttlMs, attempt } = question
    if (stay.left || stay.token === undefined) {
      // Nobody waits for it any more. What gives it back was sent after it, and has arrived after it unless messages
      // overtake each other, or got lost.
      const overtaken = typeof answer === 'number' && this.#around.nodes[node]?.ordered !== true
      // What came after it must not be touched.
      if (overtaken || isSilent(answer)) outbox.leave(node, stay.left ? { key, id } : { key, id, upTo: attempt }, ttlMs)
    } else if (clock.now() < stay.deadline) this.#mend(question, stay, node, answer)
    outbox.flush()
  }

  /** Whatever has been decided so far, and what follows. */
  #judge(): void {
    for (const item of this.#items) if (item.state === 'asked') this.#decide(item)
    this.#around.outbox.flush()
    this.#finish()
  }

  #decide(item: Item): void {
    const { stay, answers } = item
    if (stay.left) {
      this.#conclude(item, { standing: GONE })
      return
    }
    const found = stay.token === undefined ? verdict(answers, item.floor) : verdictOnHolder(answers, stay.token)
    if (found.step === 'granted') this.#grant(item, found.token)
    else if (found.step === 'raise') this.#raise(item, found.to)
    else if (found.step === 'failed') this.#fail(item)
  }

  #grant(item: Item, token: number): void {
    const { question, stay, answers } = item
    const { clock } = this.#around
    const now = clock.now()
    const until = validUntil(this.#sentAt, question.ttlMs)
    if (now >= until) {
      this.#takeBack(item, { standing: { state: 'failed', error: outrun(question.ttlMs) } })
      return
    }
    stay.token = token
    stay.attempt = question.attempt
    stay.deadline = Math.max(stay.deadline, until)
    for (let node = 0; node < answers.length; node += 1) {
      const answer = answers[node]
      if (answer !== undefined && answer !== token) this.#mend(question, stay, node, answer)
    }
    const heldForMs = question.ttlMs - (now - this.#sentAt)
    this.#conclude(item, { standing: { state: 'held', token: BigInt(token), heldForMs } })
  }

  /** Have it on this node as on the majority, if it can be had there. */
  #mend({ key, id, ttlMs, attempt, outlives = false }: Question, stay: Stay, node: number, answer: Answer): void {
    const { token, holder, deadline } = stay
    if (token === undefined || answer === token) return
    const { outbox, clock, timeoutMs } = this.#around
    const mend = { key, id, ttlMs, holder, attempt, token, outlives }
    const doubtful = (): void => {
      // It may have been set after the release.
      if (!stay.left) return
      outbox.leave(node, { key, id }, ttlMs)
      outbox.flush()
    }
    if (typeof answer === 'number') outbox.mend(node, { ...mend, seen: answer, notAfterMs: 0 }, doubtful)
    else if (answer.why === 'missing') {
      // What is late by more than that was held up by a connection that broke, and could come after the release.
      const notAfterMs = answer.nowMs + Math.min(deadline - clock.now(), MEND_TIMEOUTS * timeoutMs)
      outbox.mend(node, { ...mend, seen: undefined, notAfterMs }, doubtful)
    }
  }

  /** Also on nodes whose answer has not come: they may have it all the same. */
  #raise(item: Item, to: number): void {
    const { question, answers } = item
    const { key, id } = question
    for (const [node, answer] of answers.entries()) {
      const known = typeof answer === 'number'
      if (answer === to || (!known && answer !== undefined && !isSilent(answer))) continue
      if (known) answers[node] = undefined
      this.#around.outbox.raise(node, { key, id, to }, (number) => {
        if (item.state !== 'asked') return
        if (number === to) answers[node] = to
        else if (known) answers[node] = number === undefined || number === 0 ? { why: 'silent' } : answer
        if (number !== undefined && number > item.floor) item.floor = number
        this.#judge()
      })
    }
    this.#arm()
  }

  #fail(item: Item): void {
    const { question, stay, answers } = item
    const most = majorityOf(answers.length)
    const summary = summaryOf(answers)
    const needed = answers.length - most + 1
    if (stay.token !== undefined) {
      const possible = answers.filter(
        (answer) => answer === stay.token || answer === undefined || isSilent(answer),
      ).length
      if (possible >= most)
        this.#conclude(item, {
          standing: { state: 'failed', error: unanswered(summary.answered, answers.length, summary.error) },
        })
      else this.#giveUp(item, summary)
    } else if (summary.evicted) this.#giveUp(item, summary)
    else if (summary.unusables >= needed) {
      this.#takeBack(item, { standing: { state: 'failed', error: unusable(question.key, summary) } })
    } else if (summary.answered < most) {
      // It cannot be had, but whether because somebody has it, or because nobody answers, depends on those that have
      // not answered yet.
      if (summary.answered + answers.filter((answer) => answer === undefined).length >= most) return
      this.#takeBack(item, {
        standing: { state: 'failed', error: unanswered(summary.answered, answers.length, summary.error) },
      })
    } else if (summary.missing >= needed) this.#giveUp(item, summary)
    else {
      const { ahead } = summary
      if (question.mode !== 'try') stay.waitsUntil = this.#sentAt + question.ttlMs
      this.#takeBack(item, { standing: { state: question.mode === 'try' ? 'busy' : 'waiting', ahead }, summary })
    }
  }

  /** It is in no line any more. */
  #giveUp(item: Item, { evicted }: Summary): void {
    item.stay.left = true
    this.#takeBack(item, { standing: evicted ? { state: 'gone', why: 'evicted' } : GONE })
  }

  /**
   * Give back what this attempt has taken, or may have: also where no answer has come. It is over when those that had
   * it have said so.
   */
  #takeBack(item: Item, result: Result): void {
    const { question, stay, answers } = item
    const { key, id, ttlMs, attempt, mode } = question
    const stays = result.standing.state === 'waiting' && mode !== 'try' ? { stays: { ttlMs, holder: stay.holder } } : {}
    const departure = stay.left ? { key, id } : { key, id, upTo: attempt, ...stays }
    item.state = 'taking back'
    item.result = result
    let expected = 0
    for (const [node, answer] of answers.entries()) {
      if (answer !== undefined && typeof answer !== 'number' && !isSilent(answer)) continue
      if (typeof answer !== 'number') {
        this.#around.outbox.leave(node, departure, ttlMs)
        continue
      }
      expected += 1
      this.#around.outbox.leave(node, departure, ttlMs, () => {
        expected -= 1
        if (expected === 0) this.#conclude(item, result)
        this.#finish()
      })
    }
    if (expected === 0) this.#conclude(item, result)
  }

  #conclude(item: Item, result: Result): void {
    if (item.state === 'decided') return
    item.state = 'decided'
    item.result = result
    this.#undecided -= 1
  }

  #finish(): void {
    if (this.#undecided > 0 || this.#timer === undefined) return
    this.#timer.cancel()
    this.#timer = undefined
    this.#done(this.#items.map(({ result }) => result as Result))
    this.#forget()
  }

  #arm(): void {
    this.#timer?.cancel()
    this.#timer = this.#around.limits.start(this.#around.timeoutMs, () => this.#timeUp())
  }

  #timeUp(): void {
    this.#timer = this.#around.limits.start(this.#around.timeoutMs, () => this.#timeUp())
    for (const item of this.#items) {
      if (item.state === 'taking back') this.#conclude(item, item.result as Result)
      if (item.state !== 'asked') continue
      for (const [node, answer] of item.answers.entries())
        if (answer === undefined) item.answers[node] = { why: 'silent' }
    }
    this.#judge()
  }

  /** When it is decided, and no answer can come any more. */
  #forget(): void {
    if (this.#asked > 0 || this.#timer !== undefined || this.#forgotten) return
    this.#forgotten = true
    for (const { stay } of this.#items) {
      stay.unanswered -= 1
      this.#around.stays.release(stay)
    }
  }
}
