/**
 * What about these servers could break the promises: too few of them, counters that a crash takes back, clocks that are
 * apart, and whatever a single Redis may suffer from.
 */
import { serverFindings } from '../../clients/redis/server-findings.ts'
import type { Clock } from '../../core/clock.ts'
import type { Finding } from '../../core/engine.ts'
import type { ServerNode } from './server.ts'
import { majorityOf } from './verdict.ts'

/** Clocks that are kept in step differ by less. */
const APART_MS = 1000
const RANK = { ok: 0, warn: 1, fail: 2 } as const

export async function diagnose(nodes: readonly ServerNode[], clock: Clock): Promise<readonly Finding[]> {
  const present = nodes.filter(({ ready }) => ready)
  const findings = await Promise.all(present.map(examine))
  return [
    servers(present.length, nodes.length),
    counters(await Promise.all(present.map(isDurable))),
    clocks(await Promise.all(present.map((node) => aheadMs(node, clock)))),
    ...worst(findings.flat()),
  ]
}

function servers(present: number, all: number): Finding {
  const spare = present - majorityOf(all)
  const finding = `${present} of ${all} answer`
  if (spare < 0) return { name: 'servers', status: 'fail', finding, todo: 'a majority has to be there' }
  if (present < all)
    return { name: 'servers', status: 'warn', finding: `${finding}; ${spare} more may fail`, todo: 'see to the others' }
  return { name: 'servers', status: 'ok', finding: `${finding}; ${spare} may fail` }
}

/** Whether nothing that was answered is lost by a crash. Where nobody may ask, nobody can rely on it. */
async function isDurable({ wire }: ServerNode): Promise<boolean> {
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
async function aheadMs({ wire }: ServerNode, clock: Clock): Promise<number> {
  const sentAt = clock.now()
  const [seconds, micros] = (await wire.send('TIME', [])) as readonly [unknown, unknown]
  return Number(seconds) * 1000 + Number(micros) / 1000 - (sentAt + clock.now()) / 2
}

function clocks(ahead: readonly number[]): Finding {
  const apartMs = Math.max(...ahead) - Math.min(...ahead)
  const finding = `the clocks of the servers are ${apartMs < 1 ? 'together' : `${Math.round(apartMs)} ms apart`}`
  if (apartMs <= APART_MS) return { name: 'clocks', status: 'ok', finding }
  const todo = 'leases rely on clocks that run alike and never jump: use NTP that slews'
  return { name: 'clocks', status: 'warn', finding, todo }
}

async function examine({ wire, names }: ServerNode): Promise<readonly Finding[]> {
  const findings = await serverFindings({ wire, prefix: names.serverKey(''), replicas: 0, thorough: true })
  return findings.flatMap(adapted)
}

/** Of what is said of a single server, what matters here. */
function adapted(found: Finding): readonly Finding[] {
  const { name } = found
  if (name === 'persistence') return []
  if (name === 'replicas' && found.status !== 'ok') {
    const finding = 'a server has replicas: one that is promoted instead of it may not know the last locks'
    return [{ name, status: 'warn', finding, todo: 'no fail-over for the servers of a Redlock: the others stand in' }]
  }
  return [found]
}

/** Of several servers, what is worst. */
function worst(findings: readonly Finding[]): readonly Finding[] {
  const found = new Map<string, Finding>()
  for (const finding of findings) {
    const known = found.get(finding.name)
    if (known === undefined || RANK[finding.status] > RANK[known.status]) found.set(finding.name, finding)
  }
  return [...found.values()]
}
