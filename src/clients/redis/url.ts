/**
 * What a URL says:
 *
 *     redis://user:password@host:6379/0            one server; rediss:// with TLS
 *     redis-sentinel://host1,host2,host3/mymaster  by name, from the sentinels; user and password of the servers
 *     redis-cluster://host1,host2,host3            a Cluster, from any of its members
 *
 * with options as a query: `prefix`; `replicas`, how many have to confirm; `tls=true`, where the scheme does not say
 * it; `ca`, a file with the certificate of the authority; `sentinelPassword`. Not read by `URL`, to which a list of
 * hosts is none. Messages say what is wrong without the URL, which may hold a password.
 */
export interface Target {
  readonly kind: 'server' | 'sentinel' | 'cluster'
  readonly hosts: readonly { readonly host: string; readonly port: number }[]
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

const SHAPE =
  /^(?<scheme>[a-z][a-z0-9-]*):\/\/(?:(?<user>[^@/?#]*)@)?(?<hosts>[^/?#]*)(?:\/(?<path>[^?#]*))?(?:\?(?<query>[^#]*))?$/i
/** What a scheme says of its hosts. */
export interface Scheme {
  readonly kind: Target['kind']
  readonly tls?: boolean
  /** Each host is a server of its own, and there may be several of them. */
  readonly several?: boolean
}

const SCHEMES: Readonly<Record<string, Scheme>> = {
  redis: { kind: 'server' },
  rediss: { kind: 'server', tls: true },
  'redis-sentinel': { kind: 'sentinel' },
  'redis-cluster': { kind: 'cluster' },
}
const OPTIONS = ['prefix', 'replicas', 'tls', 'ca', 'sentinelPassword'] as const
const REDIS_PORT = 6379
const SENTINEL_PORT = 26379

/** `schemes`, for an engine that has one of its own. */
export function parseUrl(url: string, schemes: Readonly<Record<string, Scheme>> = SCHEMES): Target {
  const { scheme: written = '', user, hosts, path = '', query } = SHAPE.exec(url)?.groups ?? {}
  const scheme = new Map(Object.entries(schemes)).get(written.toLowerCase())
  if (scheme === undefined || hosts === undefined)
    throw new TypeError('a redis URL is redis://user:password@host:port/database?option=value')
  // What is left of an '@' is a secret, wherever it stands: it must not be quoted below.
  if (url.split('@').length > (user === undefined ? 1 : 2)) throw unencoded()
  const { kind } = scheme
  const { tls, replicas, ...options } = optionsIn(query)
  const target = {
    kind,
    hosts: hostsIn(hosts, kind === 'sentinel' ? SENTINEL_PORT : REDIS_PORT),
    ...credentials(user),
    ...options,
    ...(replicas === undefined ? {} : { replicas: Number(replicas) }),
    tls: scheme.tls === true || yes('tls', tls),
  } as const
  if (scheme.several !== true && kind === 'server' && target.hosts.length > 1)
    throw new TypeError('redis:// has one host; for several, redis-cluster:// or redis-sentinel://')
  if (kind !== 'sentinel') return { ...target, db: databaseIn(path, kind) }
  const [name = '', db = ''] = path.split('/')
  if (name === '')
    throw new TypeError('a redis-sentinel: URL names the master: redis-sentinel://host1,host2,host3/mymaster')
  return { ...target, name: decoded(name), db: databaseIn(db, kind) }
}

function unencoded(): TypeError {
  return new TypeError(
    "in a redis URL, user, password and options are percent-encoded: '@' is %40, ':' %3A, '/' %2F, '?' %3F, '#' %23, '%' %25",
  )
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw unencoded()
  }
}

function hostsIn(text: string, port: number): Target['hosts'] {
  return (text === '' ? '127.0.0.1' : text).split(',').map((host) => {
    const found = /^(?<name>\[[^\]]+\]|[^:]+)(?::(?<port>\d{1,5}))?$/.exec(host)?.groups
    if (found?.name === undefined) throw new TypeError(`a host in a redis URL is host:port; got '${host}'`)
    return { host: found.name.replaceAll(/[[\]]/g, ''), port: Number(found.port ?? port) }
  })
}

function credentials(user: string | undefined): Pick<Target, 'username' | 'password'> {
  if (user === undefined) return {}
  const [name = '', ...rest] = user.split(':')
  const password = decoded(rest.join(':'))
  return { ...(name === '' ? {} : { username: decoded(name) }), ...(password === '' ? {} : { password }) }
}

function databaseIn(path: string, kind: Target['kind']): number {
  const text = path.replace(/\/$/, '')
  if (text === '') return 0
  if (!/^\d+$/.test(text)) throw new TypeError(`the database in a redis URL is a number; got '${text}'`)
  if (kind === 'cluster' && text !== '0') throw new TypeError('a Cluster has only the database 0')
  return Number(text)
}

function optionsIn(query: string | undefined): { readonly [Name in (typeof OPTIONS)[number]]?: string } {
  const options: Record<string, string> = {}
  for (const [name, value] of new URLSearchParams(query)) {
    if (!(OPTIONS as readonly string[]).includes(name))
      throw new TypeError(`unknown option '${name}' in a redis URL; known: ${OPTIONS.join(', ')}`)
    options[name] = value
  }
  return options
}

function yes(name: string, value: string | undefined): boolean {
  if (value === undefined || value === 'false') return false
  if (value === 'true') return true
  throw new TypeError(`${name} in a redis URL must be true or false; got '${value}'`)
}
