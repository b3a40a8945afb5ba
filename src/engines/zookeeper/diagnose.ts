/**
 * What about an ensemble could break the promises of locks on it. Servers are asked by words of four letters, of which
 * all but `srvr` are forbidden unless the configuration allows them.
 */
import { randomUUID } from 'node:crypto'
import { hasCode } from '../../clients/zookeeper/errors.ts'
import { askWord } from '../../clients/zookeeper/four-letter-word.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { isAtLeast } from '../../core/version-number.ts'
import type { ClassSession, ZooKeeperContext } from './class-session.ts'

const OLDEST = [3, 5] as const

export async function diagnose(context: ZooKeeperContext, session: ClassSession): Promise<readonly NamedFinding[]> {
  const { servers, clock } = context
  await session.zk.confirm()
  const askAll = (word: string): Promise<readonly (string | undefined)[]> =>
    Promise.all(servers.endpoints.map((endpoint) => askWord(endpoint, servers.tls, clock, word)))
  const [said, settings] = [await askAll('srvr'), await askAll('conf')]
  return [
    versionFinding(said),
    ensembleFinding(said),
    sessionFinding(
      settings.find((one) => one !== undefined),
      session.zk.timeoutMs,
    ),
    diskSpaceFinding(settings),
    await rightsFinding(context, session),
  ]
}

export function versionFinding(said: readonly (string | undefined)[]): NamedFinding {
  const name = 'version'
  const versions = [
    ...new Set(said.flatMap((text) => /Zookeeper version: (\d+\.\d+\.\d+)/i.exec(text ?? '')?.[1] ?? [])),
  ]
  if (versions.length === 0)
    return { name, status: 'warn', finding: 'no server says', todo: 'allow the word `srvr` (4lw.commands.whitelist)' }
  const finding = `ZooKeeper ${versions.join(', ')}`
  if (versions.every((version) => isAtLeast(version, OLDEST))) return { name, status: 'ok', finding }
  return { name, status: 'fail', finding, todo: `use ${OLDEST.join('.')} or newer` }
}

function ensembleFinding(said: readonly (string | undefined)[]): NamedFinding {
  const name = 'ensemble'
  const modes = said.map((text) => /^Mode: (\w+)/m.exec(text ?? '')?.[1] ?? 'no answer')
  const finding = modes.join(', ')
  if (modes.includes('no answer'))
    return { name, status: 'warn', finding, todo: 'a server that is named here does not serve, or may not say `srvr`' }
  if (modes.length === 1 && modes[0] === 'standalone')
    return { name, status: 'warn', finding, todo: 'with one server, its death is the death of all locks; run three' }
  return { name, status: 'ok', finding }
}

/** `settings`: what the word `conf` answers. */
function sessionFinding(settings: string | undefined, grantedMs: number): NamedFinding {
  const name = 'session limits'
  const setting = (key: string): number | undefined => {
    const found = new RegExp(`^${key}=(\\d+)`, 'm').exec(settings ?? '')?.[1]
    return found === undefined ? undefined : Number(found)
  }
  const [tickMs, shortest, longest] = [setting('tickTime'), setting('minSessionTimeout'), setting('maxSessionTimeout')]
  if (tickMs === undefined || shortest === undefined || longest === undefined)
    return {
      name,
      status: 'ok',
      finding: `a session of ${grantedMs} ms was granted; the limits are not told (\`conf\`)`,
    }
  const finding = `${shortest} ms to ${longest} ms, tick ${tickMs} ms`
  // A follower tells its leader twice in a tick which clients it has heard of: see clients/zookeeper/session-life.ts.
  if (shortest >= 2 * tickMs) return { name, status: 'ok', finding }
  const todo = 'a session shorter than two ticks can end before its holder knows; raise minSessionTimeout'
  return { name, status: 'warn', finding, todo }
}

const GIB = 2 ** 30
/** Of locks alone, a server has far less. */
const MANY_BYTES = 5 * GIB

/** `settings`: what the word `conf` answers, for each server. No word tells whether old files are purged. */
export function diskSpaceFinding(settings: readonly (string | undefined)[]): NamedFinding {
  const name = 'disk space'
  const sizes = settings.flatMap((text) => {
    const setting = (key: string): string => new RegExp(`^${key}=(.*)$`, 'm').exec(text ?? '')?.[1] ?? ''
    const [data, log] = [Number(setting('dataDirSize')), Number(setting('dataLogSize'))]
    if (text === undefined || setting('dataDirSize') === '') return []
    return [setting('dataDir') === setting('dataLogDir') ? data : data + log]
  })
  if (sizes.length === 0) return { name, status: 'ok', finding: 'how much servers have stored is not told (`conf`)' }
  const largest = Math.max(...sizes)
  const finding = `${(largest / GIB).toFixed(1)} GiB of snapshots and logs; whether old ones are purged is not told`
  if (largest < MANY_BYTES) return { name, status: 'ok', finding }
  const todo = 'a full disk ends all locks, and a server deletes nothing unless told: set autopurge.purgeInterval'
  return { name, status: 'warn', finding, todo }
}

/**
 * No word tells whether the servers check rights. So it is tried: a node that no client may touch is created, written
 * and deleted in one step, which is refused as a whole where rights are checked. Nothing is left of it either way.
 */
async function rightsFinding({ servers, names }: ZooKeeperContext, { zk }: ClassSession): Promise<NamedFinding> {
  const name = 'rights'
  if (servers.auth === undefined)
    return { name, status: 'ok', finding: 'no user is given: every client may touch locks' }
  const path = `${names.base}/doctor-${randomUUID()}`
  const data = Buffer.alloc(0)
  try {
    await zk.multi([
      { create: { path, data, mode: 'ephemeral', acl: 'nobody' } },
      { setData: { path, data, version: -1 } },
      { delete: { path, version: -1 } },
    ])
  } catch (error) {
    if (hasCode(error, 'noAuth')) return { name, status: 'ok', finding: 'rights are checked' }
    if (!hasCode(error, 'noNode')) throw error
    return { name, status: 'ok', finding: `not known before there is a first lock: '${names.base}' does not exist` }
  }
  const finding = 'rights are not checked (skipACL), or not for this user'
  return { name, status: 'warn', finding, todo: 'remove skipACL from the servers, and use no super user for locks' }
}
