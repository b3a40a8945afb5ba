/**
 * The driver of all benchmarks: contenders take turns in short rounds, so that whatever else the machine does meets all
 * of them alike, and the figures of one run can be compared with each other. Absolute figures mean little; ratios are
 * what is printed last.
 */

export interface Contender {
  readonly name: string
  /** Do the thing, again and again, until `more()` says stop. Returns how often it was done. */
  readonly run: (more: () => boolean) => Promise<number>
}

export interface Result {
  readonly name: string
  /** Operations per second, median of the rounds. */
  readonly rate: number
  /** Of each round. */
  readonly rates: readonly number[]
}

export interface RaceOptions {
  readonly rounds?: number
  readonly roundMs?: number
  /** How many rounds come before those that count. What has more code is compiled later. */
  readonly warmUps?: number
}

/** Let contenders race. The first one is what the others are compared with. */
export async function race(
  question: string,
  contenders: readonly Contender[],
  options: RaceOptions = {},
): Promise<readonly Result[]> {
  const { rounds = 7, roundMs = 300, warmUps = 3 } = options
  const rates = contenders.map((): number[] => [])
  for (let round = -warmUps; round < rounds; round += 1) {
    for (const [index, contender] of contenders.entries()) {
      const rate = await timed(contender, roundMs)
      if (round >= 0) rates[index]?.push(rate)
    }
  }
  const results = contenders.map(({ name }, index) => ({
    name,
    rate: median(rates[index] ?? []),
    rates: rates[index] ?? [],
  }))
  print(question, results)
  return results
}

/**
 * A turn begins with a moment that does not count: the garbage and the cold caches that the one before leaves behind
 * are not one's own.
 */
async function timed({ run }: Contender, ms: number): Promise<number> {
  const settledAt = performance.now() + ms / 3
  await run(() => performance.now() < settledAt)
  const startedAt = performance.now()
  const until = startedAt + ms
  const done = await run(() => performance.now() < until)
  return (done * 1000) / (performance.now() - startedAt)
}

/** Several callers, each doing `step` in a closed loop. */
export function callers(count: number, step: (caller: number) => Promise<unknown>): Contender['run'] {
  return async (more) => {
    let done = 0
    const loop = async (caller: number): Promise<void> => {
      while (more()) {
        await step(caller)
        done += 1
      }
    }
    await Promise.all(Array.from({ length: count }, (_, caller) => loop(caller)))
    return done
  }
}

/**
 * How much faster one is than the other: the median of what each round says, since a busy moment meets both of a round,
 * but not all rounds.
 */
export function ratio(one: Result | undefined, other: Result | undefined): number {
  return median((one?.rates ?? []).map((rate, round) => rate / (other?.rates[round] ?? Number.NaN)))
}

/** The result of the contender whose name begins so. */
export function resultOf(results: readonly Result[], name: string): Result | undefined {
  return results.find((result) => result.name.startsWith(name))
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

export function percentile(values: readonly number[], fraction: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? Number.NaN
}

function print(question: string, results: readonly Result[]): void {
  const [first] = results
  console.log(`\n${question}`)
  for (const result of results) {
    const { name, rate } = result
    console.log(
      `  ${name.padEnd(44)} ${rate.toFixed(0).padStart(10)} /s   ${ratio(result, first).toFixed(2).padStart(6)} x`,
    )
  }
}

/** A figure that is no race, with what it has to be. */
export function figure(what: string, value: string): void {
  console.log(`  ${what.padEnd(64)} ${value}`)
}
