/**
 * What about these servers could break the promises: too few of them, counters that a crash takes back, clocks that are
 * apart, and what a single Redis may suffer from.
 */
import { codeOf } from '../../clients/redis/errors.ts'
import { serverFindings, worstOfEach } from '../../clients/redis/server-findings.ts'
import { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Clock } from '../../core/clock.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { majorityOf } from './quorum-decision.ts'
import type { RedlockServer } from './server.ts'

/** Clocks that are kept in step differ by less. */
const APART_MS = 1000
/** A server that does not say what time it is within this time counts as away. */
const ANSWER_MS = 2000

/** What one server that answers has said. */
interface ServerAnswers {
  /** How far its clock is ahead of ours; undefined if this user may not ask. */
  readonly aheadMs: number | undefined
  readonly durable: boolean
  readonly findings: readonly NamedFinding[]
  /** What it has refused to say, or why it stopped answering. */
  readonly error: Error | undefined
}

/** Of what is found on several servers, the worst. A server that fails is a finding, too: never rejects. */
export async function diagnose(servers: readonly RedlockServer[], clock: Clock): Promise<readonly NamedFinding[]> {
  const limits = new CallLimits(clock)
  const asked = await Promise.all(servers.filter(({ ready }) => ready).map((server) => ask(server, clock, limits)))
  const present = asked.filter((answers) => answers !== undefined)
  return [
    presence(present.length, servers.length),
    ...questions(present),
    ...durability(present.map(({ durable }) => durable)),
    ...clockSkew(present.flatMap(({ aheadMs }) => aheadMs ?? [])),
    ...worstOfEach(present.flatMap(({ findings }) => findings)),
  ]
}

/** Undefined: it does not answer. */
async function ask(server: RedlockServer, clock: Clock, limits: CallLimits): Promise<ServerAnswers | undefined> {
  let error: Error | undefined
  const orElse =
    <Value>(value: Value) =>
    (thrown: unknown): Value => {
      error = thrown as Error
      return value
    }
  const aheadMs = await limits.within(clockAheadMs(server, clock), ANSWER_MS).catch(orElse(undefined))
  // A refusal is an answer.
  if (error !== undefined && codeOf(error) === undefined) return undefined
  const durable = await isDurable(server).catch(orElse(false))
  const findings = await findingsOn(server).catch(orElse([]))
  return { aheadMs, durable, findings, error }
}

function questions(present: readonly ServerAnswers[]): readonly NamedFinding[] {
  const errors = present.flatMap(({ error }) => error ?? [])
  if (errors.length === 0) return []
  const finding = `${errors.length} of ${present.length} servers have not answered every question: ${errors[0]?.message}`
  return [{ name: 'questions', status: 'warn', finding, todo: 'let this user call INFO, TIME, CONFIG GET and SCAN' }]
}

function presence(present: number, all: number): NamedFinding {
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

function durability(durable: readonly boolean[]): readonly NamedFinding[] {
  if (durable.length === 0) return []
  const name = 'durability'
  const weak = durable.filter((one) => !one).length
  if (weak === 0) return [{ name, status: 'ok', finding: 'every server writes its counters to disk before it answers' }]
  const finding =
    `${weak} of ${durable.length} servers can forget what they have counted to: after a crash tokens rely on their ` +
    'clocks, and an empty restart can let in a second holder'
  const todo =
    'CONFIG SET appendonly yes, CONFIG SET appendfsync always; or keep a server that crashed away for longer than the longest ttl'
  return [{ name, status: 'warn', finding, todo }]
}

/** How far the clock of a server is ahead of ours; only differences between servers mean anything. */
async function clockAheadMs({ wire }: RedlockServer, clock: Clock): Promise<number> {
  const sentAt = clock.now()
  const [seconds, micros] = (await wire.send('TIME', [])) as readonly [unknown, unknown]
  return Number(seconds) * 1000 + Number(micros) / 1000 - (sentAt + clock.now()) / 2
}

function clockSkew(ahead: readonly number[]): readonly NamedFinding[] {
  if (ahead.length < 2) return []
  const name = 'clock skew'
  const apartMs = Math.max(...ahead) - Math.min(...ahead)
  const finding = `the clocks of the servers are ${apartMs < 1 ? 'together' : `${Math.round(apartMs)} ms apart`}`
  if (apartMs <= APART_MS) return [{ name, status: 'ok', finding }]
  const todo = 'leases rely on clocks that run alike and never jump: use NTP that slews'
  return [{ name, status: 'warn', finding, todo }]
}

async function findingsOn({ wire, names }: RedlockServer): Promise<readonly NamedFinding[]> {
  const findings = await serverFindings({ wire, prefix: names.serverKey(''), replicas: 0, thorough: true })
  return findings.flatMap(adapted)
}

/** Of what is said of a single server, what matters to a Redlock. */
function adapted(found: NamedFinding): readonly NamedFinding[] {
  const { name } = found
  // Of the servers of a Redlock more is asked: `isDurable`.
  if (name === 'durability') return []
  if (name === 'replicas' && found.status !== 'ok') {
    const finding = 'a server has replicas: one that is promoted instead of it may not know the last locks'
    return [{ name, status: 'warn', finding, todo: 'no fail-over for the servers of a Redlock: the others stand in' }]
  }
  return [found]
}
