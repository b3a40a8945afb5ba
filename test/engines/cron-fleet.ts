/** A fleet of hosts with jobs: real processes, with clocks that are wrong, killed and stopped at random. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { dirname } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { dice } from '../../conformance/chance.ts'
import { builtModule } from '../built.ts'
import type { WrongClocks } from '../servers/clock.ts'

/** Where chance begins: in what befalls the hosts, and in how long they work. */
export const SEED: number = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000)
/** By how much the clocks of the eight hosts are ahead. */
const AHEAD_MS = [0, 1_500, 4_000, 60_000, -2_000, -7_000, -60_000, 3_600_000]
const SHORTEST_LIFE_MS = 500
const LONGEST_LIFE_MS = 2_500
const STOPPED_PERCENT = 30
/** Once in so many looks for a host that works, another one will do. */
const LOOKS_FOR_WORKING = 100
const WORK_WITHIN_MS = 1_000
/** The ttl is two seconds. */
const STOPPED_MS = 3_500

/** What a host has told. */
export interface Told {
  readonly step: 'begin' | 'end' | 'error' | 'ready'
  readonly job: string
  readonly tick: number
  readonly attempt: number
  /** The real time. */
  readonly at: number
  readonly error?: string
}

export class CronFleet implements AsyncDisposable {
  readonly told: Told[] = []
  readonly #chance = dice(SEED)
  readonly #hosts: ChildProcess[] = []
  readonly #start: (index: number) => ChildProcess
  /** The host that has begun to work last, and works. */
  #working: number | undefined
  #over = false
  #started = 0

  constructor(how: 'holdfast' | 'set-nx', url: string, clocks: WrongClocks) {
    const modules = dirname(builtModule('src/index.ts'))
    this.#start = (index) => {
      this.#started += 1
      const env = {
        ...process.env,
        ...clocks.env(AHEAD_MS[index] as number),
        HOLDFAST_SEED: String(SEED + this.#started),
      }
      const child = spawn(process.execPath, ['test/engines/cron.child.mjs', how, modules, url], {
        env,
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      createInterface({ input: child.stdout }).on('line', (line) => {
        const told = JSON.parse(line) as Told
        this.told.push(told)
        if (told.step === 'begin') this.#working = index
        else if (this.#working === index) this.#working = undefined
      })
      return child
    }
  }

  /** Resolves when all hosts are there. */
  async start(): Promise<void> {
    for (const index of AHEAD_MS.keys()) this.#hosts.push(this.#start(index))
    while (this.told.filter(({ step }) => step === 'ready').length < AHEAD_MS.length) {
      if (this.#hosts.some(({ exitCode }) => exitCode !== null)) throw new Error('a host has ended')
      await sleep(50)
    }
  }

  /**
   * For so long, one host after the other is killed and started again, or stopped for longer than its ttl. `rarity`:
   * how many times the usual pause is between them. Answers how many were.
   */
  async harmFor(ms: number, rarity: number): Promise<{ killed: number; stopped: number }> {
    const until = performance.now() + ms
    const harmed = { killed: 0, stopped: 0 }
    while (performance.now() < until && !this.#over) {
      await sleep(rarity * (SHORTEST_LIFE_MS + this.#chance.below(LONGEST_LIFE_MS - SHORTEST_LIFE_MS)))
      const index = await this.#victim()
      if (this.#chance.below(100) < STOPPED_PERCENT) {
        void stopAndGoOn(this.#hosts[index] as ChildProcess)
        harmed.stopped += 1
      } else {
        await end(this.#hosts[index] as ChildProcess)
        this.#hosts[index] = this.#start(index)
        harmed.killed += 1
      }
    }
    return harmed
  }

  /** A host that works, mostly. */
  async #victim(): Promise<number> {
    const until = performance.now() + WORK_WITHIN_MS
    while (!this.#chance.oneIn(LOOKS_FOR_WORKING) && this.#working === undefined && performance.now() < until)
      await sleep(5)
    return this.#working ?? this.#chance.below(this.#hosts.length)
  }

  /** The ticks of a job that were begun, each as often as it was. */
  begun(job: string): readonly Told[] {
    return this.told.filter((told) => told.step === 'begin' && told.job === job)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true
    await Promise.all(this.#hosts.map(end))
  }
}

async function stopAndGoOn(child: ChildProcess): Promise<void> {
  child.kill('SIGSTOP')
  await sleep(STOPPED_MS)
  child.kill('SIGCONT')
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}
