/**
 * What about these servers could break the promises: too few of them, counters that a crash takes back, clocks that are
 * apart, and what a single Redis may suffer from.
 */
import { serverFindings } from '../../clients/redis/server-findings.ts'
import type { Clock } from '../../core/clock.ts'
import type { Finding } from '../../core/engine.ts'
import { majorityOf } from './quorum-decision.ts'
import type { RedlockServer } from './server.ts'

/** Clocks that are kept in step differ by less. */
const APART_MS = 1000
const RANK = { ok: 0, warn: 1, fail: 2 } as const

/**
 * Findings are called `servers`, `counters`, `clocks`, `version`, `eviction`, `replicas` and `strangers`; of several
 * servers, the worst.
 */
export async function diagnose(servers: readonly RedlockServer[], clock: Clock): Promise<readonly Finding[]> {
  const present = servers.filter(({ ready }) => ready)
  const ofEach = await Promise.all(present.map(findingsOn))
  return [
    presence(present.length, servers.length),
    counters(await Promise.all(present.map(isDurable))),
    clocks(await Promise.all(present.map((server) => aheadMs(server, clock)))),
    ...worstOfEach(ofEach.flat()),
  ]
}

function presence(present: number, all: number): Finding {
  const name = 'servers'
  const spare = present - majorityOf(all)
  const finding = `${present} of ${all} answer`
  if (spare < 0) return { name, status: 'fail', finding, todo: 'a majority has to be there' }
  if (present < all)
    return { name, status: 'warn', finding: `${finding}; ${spare} more may fail`, todo: 'see to the others' }
  return { name, status: 'ok', finding: `${finding}; ${spare} may fail` }
}

/**
 * Whether a crash loses nothing that was answered. Where we may not ask for the configuration, it may lose something.
 */
async function isDurable({ wire }: RedlockServer): Promise<boolean> {
  const info = String(await wire.send('INFO', ['persistence']))
  if (!/^aof_enabled:1/m.test(info)) return false
  const reply = await wire.send('CONFIG', ['GET', 'appendfsync']).catch(() => undefined)
  return JSON.stringify(reply instanceof Map ? [...reply] : (reply ?? '')).includes('always')
}

function counters(durable: readonly boolean[]): Finding {
  const name = 'counters'
  const weak = durable.filter((one) => !one).length
  if (weak === 0) return { name, status: 'ok', finding: 'every server writes its counters to disk before it answers' }
  const finding = `${weak} of ${durable.length} servers can forget what they have counted to: after a crash tokens rely on their clocks, and an empty restart can let in a second holder`
  const todo =
    'CONFIG SET appendonly yes, CONFIG SET appendfsync always; or keep a server that crashed away for longer than the longest ttl'
  return { name, status: 'warn', finding, todo }
}

/** How far the clock of a server is ahead of ours; only differences between servers mean anything. */
async function aheadMs({ wire }: RedlockServer, clock: Clock): Promise<number> {
  const sentAt = clock.now()
  const [seconds, micros] = (await wire.send('TIME', [])) as readonly [unknown, unknown]
  return Number(seconds) * 1000 + Number(micros) / 1000 - (sentAt + clock.now()) / 2
}

function clocks(ahead: readonly number[]): Finding {
  const name = 'clocks'
  const apartMs = Math.max(...ahead) - Math.min(...ahead)
  const finding = `the clocks of the servers are ${apartMs < 1 ? 'together' : `${Math.round(apartMs)} ms apart`}`
  if (apartMs <= APART_MS) return { name, status: 'ok', finding }
  return {
    name,
    status: 'warn',
    finding,
    todo: 'leases rely on clocks that run alike and never jump: use NTP that slews',
  }
}

async function findingsOn({ wire, names }: RedlockServer): Promise<readonly Finding[]> {
  const findings = await serverFindings({ wire, prefix: names.serverKey(''), replicas: 0, thorough: true })
  return findings.flatMap(adapted)
}

/** Of what is said of a single server, what matters to a Redlock. */
function adapted(found: Finding): readonly Finding[] {
  const { name } = found
  if (name === 'persistence') return []
  if (name === 'replicas' && found.status !== 'ok') {
    const finding = 'a server has replicas: one that is promoted instead of it may not know the last locks'
    return [{ name, status: 'warn', finding, todo: 'no fail-over for the servers of a Redlock: the others stand in' }]
  }
  return [found]
}

function worstOfEach(findings: readonly Finding[]): readonly Finding[] {
  const worst = new Map<string, Finding>()
  for (const finding of findings) {
    const known = worst.get(finding.name)
    if (known === undefined || RANK[finding.status] > RANK[known.status]) worst.set(finding.name, finding)
  }
  return [...worst.values()]
}
