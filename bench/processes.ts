/**
 * What is asked of every engine that several processes share: how fast a lock changes hands, how the cost grows with
 * the line, and when the dead are replaced.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, type Locks } from '../src/index.ts'
import { nowNs, type Order } from './child.ts'
import { figure, median, percentile } from './driver.ts'
import { messages } from './messages.ts'

/** Another process with locks at `url`. */
export class Child implements Disposable {
  readonly #process: ChildProcess

  static async start(url: string): Promise<Child> {
    const child = new Child(fork(new URL('./child.js', import.meta.url), [url]))
    await child.next()
    return child
  }

  private constructor(process: ChildProcess) {
    this.#process = process
  }

  async ask(order: Order): Promise<{ at: string }> {
    const answer = this.next()
    this.#process.send(order)
    return await answer
  }

  /** What it says next. */
  async next(): Promise<{ at: string }> {
    const [answer] = (await once(this.#process, 'message')) as [{ at: string }]
    return answer
  }

  kill(): void {
    this.#process.kill('SIGKILL')
  }

  [Symbol.dispose](): void {
    this.kill()
  }
}

export interface HandOffOptions {
  /** What the ratio is to be, in words. */
  readonly wanted?: string
  /** How many are counted. As many again come first: both processes are to have run for a while. */
  readonly rounds?: number
  /** How long nothing is done before each. Then they are meant to be cold, and none come first. */
  readonly restMs?: number
}

/**
 * From the call of release in one process to the grant in another; and what a bare message takes, by turns, where the
 * server has messages.
 */
export async function handOff(url: string, { wanted, rounds = 1000, restMs = 0 }: HandOffOptions = {}): Promise<void> {
  const kind = messages(url)
  const [locks, bare] = [await connect(url), await kind?.teller(url)]
  using child = await Child.start(url)
  await child.ask({ do: 'listen' })
  const [handOffs, releases, told]: [number[], number[], number[]] = [[], [], []]
  for (let round = restMs > 0 ? 0 : -rounds; round < rounds; round += 1) {
    const lease = await locks.mutex('hand-off').acquire()
    const granted = child.ask({ do: 'acquire', key: 'hand-off', ttlMs: 30_000 })
    await untilWaiting(locks, 'hand-off', 1)
    if (restMs > 0) await sleep(restMs)
    const handedOver = await timed(() => lease.release(), granted)
    await child.ask({ do: 'release' })
    await bare?.prepare?.()
    if (restMs > 0) await sleep(restMs)
    const heard = bare === undefined ? undefined : await timed(() => bare.tell(), child.next())
    if (round < 0) continue
    handOffs.push(handedOver.heardMs)
    releases.push(handedOver.doneMs)
    if (heard !== undefined) told.push(heard.heardMs)
  }
  console.log(
    `\nhand-off between two processes, from the call of release to the grant${restMs > 0 ? `, when nothing was done for ${restMs} ms` : ''}`,
  )
  const ratio = kind === undefined ? '' : `   ${(median(handOffs) / median(told)).toFixed(2)} x`
  if (kind !== undefined) figure(`${kind.name}, median`, `${median(told).toFixed(3)} ms`)
  figure('holdfast, median', `${median(handOffs).toFixed(3)} ms${ratio}${wanted === undefined ? '' : `   (${wanted})`}`)
  if (kind !== undefined) figure(`${kind.name}, 99th percentile`, `${percentile(told, 0.99).toFixed(3)} ms`)
  figure('holdfast, 99th percentile', `${percentile(handOffs, 0.99).toFixed(3)} ms`)
  figure('the release itself, until it is answered, median', `${median(releases).toFixed(3)} ms`)
  await bare?.close()
  await locks.close()
}

/** From now, when it is started, to the time that the other process says that it has heard; and until it is done. */
async function timed(
  start: () => Promise<unknown>,
  answer: Promise<{ at: string }>,
): Promise<{ heardMs: number; doneMs: number }> {
  const startedAt = nowNs()
  const done = start().then(() => nowNs())
  const { at } = await answer
  return { heardMs: Number(BigInt(at) - startedAt) / 1e6, doneMs: Number((await done) - startedAt) / 1e6 }
}

/**
 * Eight clients wait, with one or with many waiters each; then the line is drained, each holder handing off to the
 * next.
 */
export async function manyWaiters(url: string, wanted?: string): Promise<void> {
  const clients = await Promise.all(Array.from({ length: 8 }, () => connect(url)))
  const costs = new Map<number, number[]>()
  let inOrder = true
  for (let round = 0; round < 9; round += 1) {
    for (const waiters of [8, 256]) {
      const { ms, tokens } = await drain(clients, waiters)
      inOrder &&= tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint))
      costs.set(waiters, [...(costs.get(waiters) ?? []), ms / waiters])
    }
  }
  const [few, many] = [median(costs.get(8) ?? []), median(costs.get(256) ?? [])]
  console.log('\nhand-off among eight clients, by number of waiters')
  figure('8 waiters', `${few.toFixed(3)} ms`)
  figure(
    '256 waiters',
    `${many.toFixed(3)} ms   ${(many / few).toFixed(2)} x${wanted === undefined ? '' : `   (${wanted})`}`,
  )
  figure('all were served in order', inOrder ? 'yes' : 'NO')
  await Promise.all(clients.map((locks) => locks.close()))
}

async function drain(clients: readonly Locks[], waiters: number): Promise<{ ms: number; tokens: readonly bigint[] }> {
  const [holder] = clients as [Locks]
  const first = await holder.mutex('line').acquire()
  const tokens: bigint[] = []
  const served = Array.from({ length: waiters }, async (_, index) => {
    const lease = await (clients[index % clients.length] as Locks).mutex('line').acquire()
    tokens.push(lease.token ?? 0n)
    await lease.release()
  })
  await untilWaiting(holder, 'line', waiters)
  const startedAt = performance.now()
  await first.release()
  await Promise.all(served)
  return { ms: performance.now() - startedAt, tokens }
}

/** From kill -9 of a holder to the next grant. */
export async function afterKill(url: string, wanted = 'the ttl at most, and a moment'): Promise<void> {
  const ttlMs = 2_000
  const locks = await connect(url)
  const times: number[] = []
  for (let round = 0; round < 5; round += 1) {
    const child = await Child.start(url)
    await child.ask({ do: 'acquire', key: `killed:${round}`, ttlMs })
    const waiting = locks.mutex(`killed:${round}`).acquire()
    await untilWaiting(locks, `killed:${round}`, 1)
    child.kill()
    const startedAt = performance.now()
    await (await waiting).release()
    times.push(performance.now() - startedAt)
  }
  console.log(`\nfrom kill -9 of a holder to the next grant, ttl ${ttlMs} ms, ${url.slice(0, url.indexOf(':'))}`)
  figure('median, longest', `${median(times).toFixed(0)} ms, ${Math.max(...times).toFixed(0)} ms   (${wanted})`)
  await locks.close()
}

export async function untilWaiting(locks: Locks, key: string, count: number): Promise<void> {
  for (;;) {
    const { entries } = await locks.inspect(key)
    if (entries.filter(({ state }) => state === 'waiting').length === count) return
    await new Promise((resolve) => setImmediate(resolve))
  }
}
