/**
 * What about a Redis could break the promises of locks on it: an eviction policy that drops locks, no persistence,
 * replicas that are not waited for, keys of strangers that never end.
 */

import type { NamedFinding } from '../../core/finding-names.ts'
import { isAtLeast } from '../../core/version-number.ts'
import { globEscape } from './names.ts'
import { type RedisServer, type RedisWire, scanPages } from './wire.ts'

const OLDEST = [6, 2] as const
/** How many keys of strangers are named. */
const NAMED = 5

export interface ServerQuestion {
  readonly wire: RedisWire
  /** What our server keys begin with. */
  readonly prefix: string
  /** How many replicas confirm every grant. */
  readonly replicas: number
  /** Look for strangers' keys: that goes through all keys. */
  readonly thorough: boolean
}

/** Of several servers, the worst; and what is wrong with the client. Rejects with the client's own error. */
export async function serverFindings(question: ServerQuestion): Promise<readonly NamedFinding[]> {
  const { wire } = question
  const findings: NamedFinding[] = []
  for (const server of await wire.servers()) findings.push(...(await examine(server, question)))
  return worstOfEach(wire.finding === undefined ? findings : [...findings, wire.finding])
}

async function examine(
  server: RedisServer,
  { prefix, replicas, thorough }: ServerQuestion,
): Promise<readonly NamedFinding[]> {
  const info = String(await server.send('INFO', []))
  const field = (name: string): string => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? ''
  const found = [version(field), eviction(field), await durability(server, field), replication(field, replicas)]
  return thorough && prefix !== '' ? [...found, await strangers(server, prefix)] : found
}

type Field = (name: string) => string

function version(field: Field): NamedFinding {
  const name = 'version'
  const product = field('valkey_version') === '' ? 'Redis' : 'Valkey'
  const text = field('valkey_version') || field('redis_version')
  const finding = `${product} ${text}`
  if (isAtLeast(text, OLDEST)) return { name, status: 'ok', finding }
  return { name, status: 'fail', finding, todo: `use Redis ${OLDEST.join('.')} or newer, or Valkey` }
}

function eviction(field: Field): NamedFinding {
  const [name, policy] = ['eviction', field('maxmemory_policy')] as const
  if (field('maxmemory') === '0') return { name, status: 'ok', finding: 'no limit of memory is set' }
  if (policy === 'noeviction') return { name, status: 'ok', finding: policy }
  const finding = `the policy ${policy} drops keys when memory runs short, locks and records among them`
  return {
    name,
    status: 'warn',
    finding,
    todo: 'CONFIG SET maxmemory-policy noeviction, or a server of its own for locks',
  }
}

async function durability(server: RedisServer, field: Field): Promise<NamedFinding> {
  const name = 'durability'
  if (field('aof_enabled') === '1') return { name, status: 'ok', finding: 'append-only file' }
  // A user may lack the permission to ask for the configuration.
  const save = settingIn(await server.send('CONFIG', ['GET', 'save']).catch(() => undefined), 'save')
  const todo = 'CONFIG SET appendonly yes, if locks are to survive a restart; tokens do in any case'
  if (save !== '')
    return {
      name,
      status: 'warn',
      finding: `the server stores snapshots only (${save}): a restart forgets the last locks`,
      todo,
    }
  return {
    name,
    status: 'warn',
    finding: 'the server is not known to store anything: a restart forgets all locks',
    todo,
  }
}

/**
 * A setting in the answer to CONFIG GET, which each client gives in a form of its own: a list, a map, an object, a list
 * of pairs.
 */
function settingIn(reply: unknown, name: string): string {
  const [first, second] = Array.isArray(reply) ? (reply as readonly unknown[]) : []
  const candidates = [
    reply instanceof Map ? reply.get(name) : undefined,
    (reply as Readonly<Record<string, unknown>> | undefined)?.[name],
    (first as { readonly value?: unknown } | undefined)?.value,
    second,
  ]
  return candidates.find((candidate) => typeof candidate === 'string') ?? ''
}

function replication(field: Field, waitedFor: number): NamedFinding {
  const [name, connected] = ['replicas', Number(field('connected_slaves'))] as const
  if (connected === 0) return { name, status: 'ok', finding: 'none' }
  const least = majority(connected)
  if (waitedFor >= least)
    return { name, status: 'ok', finding: `${connected}, of which ${waitedFor} confirm every grant` }
  const finding = `${connected}, and a fail-over can lose locks that none of them has confirmed`
  return { name, status: 'warn', finding, todo: `durability: { replicas: ${least} }, or check tokens at the resource` }
}

/** How many replicas have to confirm, so that they and the master are more than half of all servers. */
export function majority(replicas: number): number {
  return Math.floor((replicas + 1) / 2)
}

async function strangers(server: RedisServer, prefix: string): Promise<NamedFinding> {
  const endless: string[] = []
  let more = 0
  for await (const names of scanPages(server, `${globEscape(prefix)}*`, 'string')) {
    const lives = await Promise.all(names.map((name) => server.send('PTTL', [name])))
    for (const [index, name] of names.entries()) {
      if (Number(lives[index]) !== -1) continue
      if (endless.length < NAMED) endless.push(name)
      else more += 1
    }
  }
  const name = 'strangers'
  if (endless.length === 0) return { name, status: 'ok', finding: `no key without expiry begins with '${prefix}'` }
  const finding = `keys without expiry, whose end cannot be waited for: ${endless.join(', ')}${more === 0 ? '' : `, and ${more} more`}`
  return { name, status: 'warn', finding, todo: 'delete them if no program needs them, or use another prefix' }
}

/** Of several servers, what is worst. */
export function worstOfEach(findings: readonly NamedFinding[]): readonly NamedFinding[] {
  const rank = { ok: 0, warn: 1, fail: 2 }
  const worst = new Map<string, NamedFinding>()
  for (const finding of findings) {
    const known = worst.get(finding.name)
    if (known === undefined || rank[finding.status] > rank[known.status]) worst.set(finding.name, finding)
  }
  return [...worst.values()]
}
