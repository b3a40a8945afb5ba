/**
 * What about an ensemble could break the promises of locks on it. Servers are asked by words of four letters, of which
 * all but `srvr` are forbidden unless the configuration allows them.
 */
import { askWord } from '../../clients/zookeeper/four-letter-word.ts'
import type { Finding } from '../../core/engine.ts'
import type { ClassSession, ZooKeeperContext } from './class-session.ts'

const OLDEST: readonly [number, number] = [3, 5]

export async function diagnose(
  { servers, clock }: ZooKeeperContext,
  session: ClassSession,
): Promise<readonly Finding[]> {
  await session.zk.confirm()
  const said = await Promise.all(servers.hosts.map((host) => askWord(host, servers.tls, clock, 'srvr')))
  const settings = await askWord(servers.hosts[0] as (typeof servers.hosts)[number], servers.tls, clock, 'conf')
  return [versionFinding(said), ensembleFinding(said), sessionFinding(settings, session.zk.timeoutMs)]
}

export function versionFinding(said: readonly (string | undefined)[]): Finding {
  const name = 'version'
  const versions = [
    ...new Set(said.flatMap((text) => /Zookeeper version: (\d+\.\d+\.\d+)/i.exec(text ?? '')?.[1] ?? [])),
  ]
  if (versions.length === 0)
    return { name, status: 'warn', finding: 'no server says', todo: 'allow the word `srvr` (4lw.commands.whitelist)' }
  const finding = `ZooKeeper ${versions.join(', ')}`
  const old = versions.some((version) => {
    const [major = 0, minor = 0] = version.split('.').map(Number)
    return major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])
  })
  return old
    ? { name, status: 'fail', finding, todo: `use ${OLDEST.join('.')} or newer` }
    : { name, status: 'ok', finding }
}

export function ensembleFinding(said: readonly (string | undefined)[]): Finding {
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
export function sessionFinding(settings: string | undefined, grantedMs: number): Finding {
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
