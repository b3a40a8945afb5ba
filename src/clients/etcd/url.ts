/**
 * What a URL says:
 *
 *     etcd://user:password@host1:2379,host2,host3
 *
 * with options as a query: `prefix`; `tls=true`; `ca`, a file with the certificate of the authority; `cert` and `key`,
 * files with a certificate of our own and its key.
 *
 * Node's `URL` cannot read a list of hosts, so this file does. Its errors never quote the URL, which may hold a
 * password.
 */
import type { EtcdUser } from './client.ts'
import type { EtcdEndpoint } from './connection.ts'

export interface EtcdUrl {
  readonly hosts: readonly EtcdEndpoint[]
  readonly user?: EtcdUser
  readonly tls: boolean
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly prefix?: string
}

const SHAPE = /^etcd:\/\/(?:(?<user>[^@/?#]*)@)?(?<hosts>[^/?#]*)\/?(?:\?(?<query>[^#]*))?$/i
const OPTIONS = ['prefix', 'tls', 'ca', 'cert', 'key'] as const
type Option = (typeof OPTIONS)[number]
const PORT = 2379

export function parseEtcdUrl(url: string): EtcdUrl {
  const { user, hosts, query } = SHAPE.exec(url)?.groups ?? {}
  if (hosts === undefined) throw new TypeError('an etcd URL is etcd://user:password@host1:port,host2:port?option=value')
  // An '@' too many is part of a password that is not encoded. The errors below must not quote it as a host.
  if (url.split('@').length > (user === undefined ? 1 : 2)) throw unencoded()
  const { tls, ...options } = optionsIn(query)
  if (tls !== undefined && tls !== 'true' && tls !== 'false')
    throw new TypeError(`tls is true or false in an etcd URL; got '${tls}'`)
  const secure = tls === undefined ? options.ca !== undefined || options.cert !== undefined : tls === 'true'
  return { hosts: hostsIn(hosts), tls: secure, ...options, ...(user === undefined ? {} : { user: userIn(user) }) }
}

function unencoded(): TypeError {
  return new TypeError(
    "in an etcd URL, user, password and options are percent-encoded: '@' is %40, ':' %3A, '/' %2F, '?' %3F, '#' %23, '%' %25",
  )
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw unencoded()
  }
}

function userIn(text: string): EtcdUser {
  const colon = text.indexOf(':')
  if (colon < 1) throw new TypeError('a user in an etcd URL has a name and a password: etcd://user:password@host')
  return { name: decoded(text.slice(0, colon)), password: decoded(text.slice(colon + 1)) }
}

function hostsIn(text: string): readonly EtcdEndpoint[] {
  return (text === '' ? '127.0.0.1' : text).split(',').map((host) => {
    const found = /^(?<name>\[[^\]]+\]|[^:[\]]+)(?::(?<port>\d{1,5}))?$/.exec(host)?.groups
    if (found?.name === undefined) throw new TypeError(`a host in an etcd URL is host:port; got '${host}'`)
    return { host: found.name.replaceAll(/[[\]]/g, ''), port: Number(found.port ?? PORT) }
  })
}

function optionsIn(query: string | undefined): { readonly [Name in Option]?: string } {
  const options: { [Name in Option]?: string } = {}
  for (const pair of (query ?? '').split('&')) {
    if (pair === '') continue
    const [name = '', ...value] = pair.split('=')
    const known = OPTIONS.find((option) => option === name)
    if (known === undefined)
      throw new TypeError(`unknown option '${name}' in an etcd URL; there are ${OPTIONS.join(', ')}`)
    options[known] = decoded(value.join('='))
  }
  return options
}
