/**
 * What `holdfast doctor` checks on any engine. What is found, as data: a name, a verdict, what it is, and what to do
 * about it. What only one engine can know of its server is in that engine's own diagnose.ts.
 */
import { systemClock as clock, systemChance } from '../core/clock.ts'
import { formatDuration } from '../core/duration.ts'
import type { Engine, Finding } from '../core/engine.ts'
import type { FindingName, NamedFinding } from '../core/finding-names.ts'
import { ttlMsOf } from '../core/locks-options.ts'
import { rejectAfter } from '../core/time-limit.ts'
import { isAtLeast } from '../core/version-number.ts'
import type { Locks } from '../locks.ts'

/** What the checks may look at. */
export interface Examined {
  readonly locks: Locks
  readonly engine: Engine
  /** The same engine once more, as another process would have it. */
  readonly another: () => Promise<AsyncDisposable & { readonly locks: Locks }>
}

interface Check {
  /** What a finding is called that says that the check could not be made. */
  readonly name: FindingName
  run(examined: Examined): Promise<readonly Finding[]>
}

/** A key of our own that no other process uses. */
const scratchKey = (): string => `holdfast:doctor:${systemChance.id()}`

const OLDEST_NODE = [20, 19] as const

async function nodeVersion(): Promise<readonly NamedFinding[]> {
  const found = {
    name: 'node',
    finding: `Node ${process.versions.node} on ${process.platform} ${process.arch}`,
  } as const
  return [
    isAtLeast(process.versions.node, OLDEST_NODE)
      ? { ...found, status: 'ok' }
      : { ...found, status: 'fail', todo: `use Node ${OLDEST_NODE.join('.')} or newer` },
  ]
}

/** The one on which all others depend. */
async function reachable({ engine, locks }: Examined): Promise<readonly NamedFinding[]> {
  try {
    await locks.inspect(scratchKey())
    return [{ name: 'reachable', status: 'ok', finding: `${engine.name} answers` }]
  } catch (error) {
    const finding = error instanceof Error ? error.message : String(error)
    return [
      {
        name: 'reachable',
        status: 'fail',
        finding,
        todo: 'nothing can be locked until it answers: check the URL, the server, permissions',
      },
    ]
  }
}

const ROUND_TRIPS = 21
/** A renewal has a third of the ttl; with the usual 30 s this is where trouble would begin. */
const SLOW_MS = 1_000

async function roundTrip({ locks }: Examined): Promise<readonly NamedFinding[]> {
  const key = scratchKey()
  const times: number[] = []
  for (let i = 0; i < ROUND_TRIPS; i += 1) {
    const sentAt = clock.now()
    await locks.inspect(key)
    times.push(clock.now() - sentAt)
  }
  times.sort((a, b) => a - b)
  const [median, worst] = [times[ROUND_TRIPS >> 1] as number, times[ROUND_TRIPS - 1] as number]
  const finding = `median ${median.toFixed(2)}ms, worst ${worst.toFixed(2)}ms of ${ROUND_TRIPS}`
  if (worst < SLOW_MS) return [{ name: 'round trip', status: 'ok', finding }]
  return [
    {
      name: 'round trip',
      status: 'warn',
      finding,
      todo: `use a ttl well above ${formatDuration(worst * 10)}, or look for what slows it down`,
    },
  ]
}

/** Enter, renew, leave, on a key of our own: what every lock is made of. */
async function verbs({ engine }: Examined): Promise<readonly NamedFinding[]> {
  const key = scratchKey()
  const ttlMs = ttlMsOf(Math.max(5_000, engine.traits.minTtlMs), engine)
  const tokens: (bigint | null)[] = []
  for (let i = 0; i < 2; i += 1) {
    const id = systemChance.id()
    const claim = { key, id, holder: 'holdfast doctor', weight: 1, limit: 1, ttlMs, wait: false }
    const [entered] = await engine.enter([claim])
    const [renewed] = await engine.renew([{ key, id, ttlMs }])
    const [left] = await engine.leave([{ key, id }])
    const steps = { enter: entered?.state, renew: renewed?.state, leave: left }
    if (entered?.state !== 'held' || renewed?.state !== 'held' || left !== true) {
      return [
        {
          name: 'verbs',
          status: 'fail',
          finding: `on a fresh key: ${JSON.stringify(steps)}`,
          todo: 'please report this',
        },
      ]
    }
    tokens.push(entered.token)
  }
  const [first, second] = tokens
  if (!engine.traits.fencing)
    return [{ name: 'verbs', status: 'ok', finding: 'enter, renew and leave work; this engine has no tokens' }]
  if (typeof first === 'bigint' && typeof second === 'bigint' && second > first) {
    return [{ name: 'verbs', status: 'ok', finding: `enter, renew and leave work; tokens ${first}, ${second}` }]
  }
  return [
    { name: 'verbs', status: 'fail', finding: `tokens do not ascend: ${first}, ${second}`, todo: 'please report this' },
  ]
}

/** What the engine itself has to say of its server. */
async function diagnosis({ engine }: Examined): Promise<readonly Finding[]> {
  return (await engine.diagnose?.()) ?? []
}

/** What an engine cannot promise, it says here as well. */
async function loss({ engine }: Examined): Promise<readonly NamedFinding[]> {
  if (engine.traits.lossBeforeNext) return []
  const finding = `${engine.name} can let the next one in before a holder knows that it lost`
  return [{ name: 'loss', status: 'warn', finding, todo: 'check tokens at the resource, or use leases' }]
}

/** A grant that takes this long came by a renewal, and not by a message. */
const POLLED_MS = 1_000

/** Two clients on one key: the second one waits, and is woken. */
async function handOff({ engine, locks: first, another }: Examined): Promise<readonly NamedFinding[]> {
  const key = scratchKey()
  await using other = await another()
  const { locks: second } = other
  const lease = await first.mutex(key).acquire({ wait: '5s' })
  if ((await second.mutex(key).tryAcquire()) !== undefined) {
    const finding = `two clients of ${engine.name} hold one key at the same time`
    return [
      {
        name: 'hand-off',
        status: 'fail',
        finding,
        todo: 'this engine does not lock across processes: use another URL',
      },
    ]
  }
  const next = second.mutex(key).acquire({ wait: '20s' })
  // The second one has to stand in line before the first one goes; else there is no hand-off.
  while ((await second.inspect(key)).entries.length < 2)
    await new Promise((resolve) => clock.timer(5, () => resolve(undefined)))
  const releasedAt = clock.now()
  await lease.release()
  const granted = await next
  const tookMs = clock.now() - releasedAt
  await granted.release()
  const finding = `from one client to the next in ${tookMs.toFixed(1)}ms`
  if (tookMs < POLLED_MS) return [{ name: 'hand-off', status: 'ok', finding }]
  return [
    {
      name: 'hand-off',
      status: 'warn',
      finding,
      todo: 'waiters are not woken and find out late: see the engine’s page on wake-ups',
    },
  ]
}

/** In this order. */
const CHECKS: readonly Check[] = [
  { name: 'round trip', run: roundTrip },
  { name: 'verbs', run: verbs },
  { name: 'diagnosis', run: diagnosis },
  { name: 'hand-off', run: handOff },
  { name: 'loss', run: loss },
]

export async function examine(examined: Examined): Promise<readonly Finding[]> {
  const findings: Finding[] = [...(await nodeVersion()), ...(await reachable(examined))]
  if (findings.some(({ status }) => status === 'fail')) return findings
  for (const check of CHECKS) findings.push(...(await attempt(check, examined)))
  return findings
}

const CHECK_MS = 30_000

/** A check that throws, or takes for ever, is a finding, too. */
async function attempt({ name, run }: Check, examined: Examined): Promise<readonly Finding[]> {
  const late = (): Error => new Error(`no answer within ${formatDuration(CHECK_MS)}`)
  try {
    return await rejectAfter(clock, CHECK_MS, run(examined), late)
  } catch (error) {
    return [{ name, status: 'fail', finding: error instanceof Error ? error.message : String(error) }]
  }
}
