/**
 * What a URL says:
 *
 *     redis://user:password@host:6379/0            one server; rediss:// with TLS
 *     redis-sentinel://host1,host2,host3/mymaster  by name, from the sentinels; user and password of the servers
 *     redis-cluster://host1,host2,host3            a Cluster, from any of its members
 *
 * with options as a query: `prefix`; `replicas`, how many have to confirm; `tls=true`, where the scheme does not say
 * it; `ca`, a file with the certificate of the authority; `sentinelPassword`.
 */
import type { Endpoint } from '../shared/endpoint.ts'
import { flagIn, type HostListUrl, type HostListUrlFormat, parseHostListUrl } from '../shared/host-list-url.ts'

export interface RedisTarget {
  readonly kind: 'server' | 'sentinel' | 'cluster'
  readonly hosts: readonly Endpoint[]
  readonly username?: string
  readonly password?: string
  /** The number of the database; 0 unless given. */
  readonly db: number
  /** For `sentinel`: the name under which they know the master. */
  readonly name?: string
  readonly tls: boolean
  /** The file of the authority's certificate. */
  readonly ca?: string
  readonly prefix?: string
  /** How many replicas have to confirm. */
  readonly replicas?: number
  readonly sentinelPassword?: string
}

/** What a scheme says of its hosts. */
export interface RedisScheme {
  readonly kind: RedisTarget['kind']
  readonly tls?: boolean
  /** Each host is a server of its own, and there may be several of them. */
  readonly several?: boolean
}

const SCHEMES: Readonly<Record<string, RedisScheme>> = {
  redis: { kind: 'server' },
  rediss: { kind: 'server', tls: true },
  'redis-sentinel': { kind: 'sentinel' },
  'redis-cluster': { kind: 'cluster' },
}
type Option = 'prefix' | 'replicas' | 'tls' | 'ca' | 'sentinelPassword'
const REDIS_PORT = 6379
const SENTINEL_PORT = 26379

/** `schemes`, for an engine that has one of its own. */
export function parseUrl(url: string, schemes: Readonly<Record<string, RedisScheme>> = SCHEMES): RedisTarget {
  const format: HostListUrlFormat<Option> = {
    name: 'a redis URL',
    example: 'redis://user:password@host:port/database?option=value',
    schemes: Object.keys(schemes),
    port: (scheme) => (schemes[scheme]?.kind === 'sentinel' ? SENTINEL_PORT : REDIS_PORT),
    options: ['prefix', 'replicas', 'tls', 'ca', 'sentinelPassword'],
  }
  const read = parseHostListUrl(url, format)
  const scheme = schemes[read.scheme] as RedisScheme
  const { kind } = scheme
  const { tls, replicas, ...options } = read.options
  const target = {
    kind,
    hosts: read.hosts,
    ...credentials(read.user),
    ...options,
    ...(replicas === undefined ? {} : { replicas: Number(replicas) }),
    tls: scheme.tls === true || flagIn(format, 'tls', tls) === true,
  } as const
  if (scheme.several !== true && kind === 'server' && target.hosts.length > 1)
    throw new TypeError('redis:// has one host; for several, redis-cluster:// or redis-sentinel://')
  if (kind !== 'sentinel') return { ...target, db: databaseIn(read.path.join('/'), kind) }
  const [name = '', db = ''] = read.path
  if (name === '')
    throw new TypeError('a redis-sentinel: URL names the master: redis-sentinel://host1,host2,host3/mymaster')
  return { ...target, name, db: databaseIn(db, kind) }
}

function credentials(user: HostListUrl<Option>['user']): Pick<RedisTarget, 'username' | 'password'> {
  const { name = '', password = '' } = user ?? {}
  return { ...(name === '' ? {} : { username: name }), ...(password === '' ? {} : { password }) }
}

function databaseIn(path: string, kind: RedisTarget['kind']): number {
  const text = path.replace(/\/$/, '')
  if (text === '') return 0
  if (!/^\d+$/.test(text)) throw new TypeError(`the database in a redis URL is a number; got '${text}'`)
  if (kind === 'cluster' && text !== '0') throw new TypeError('a Cluster has only the database 0')
  return Number(text)
}
