/**
 * What a URL says:
 *
 *     zookeeper://user:password@host1:2181,host2,host3/chroot
 *
 * with options as a query: `path`, the node under which locks are; `tls=true`; `ca`, a file with the certificate of the
 * authority; `cert` and `key`, files with a certificate of our own and its key. A user and a password are the
 * credentials of the scheme `digest`.
 *
 * Node's `URL` cannot read a list of hosts, so this file does. Its errors never quote the URL, which may hold a
 * password.
 */
import type { ZooKeeperEndpoint } from './connection.ts'
import type { ZooKeeperAuth } from './session-connection.ts'

export interface ZooKeeperUrl {
  readonly hosts: readonly ZooKeeperEndpoint[]
  readonly chroot: string
  readonly auth?: ZooKeeperAuth
  readonly tls: boolean
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly path?: string
}

const SHAPE = /^zookeeper:\/\/(?:(?<user>[^@/?#]*)@)?(?<hosts>[^/?#]*)(?<chroot>\/[^?#]*)?(?:\?(?<query>[^#]*))?$/i
const OPTIONS = ['path', 'tls', 'ca', 'cert', 'key'] as const
type Option = (typeof OPTIONS)[number]
const PORT = 2181

export function parseZooKeeperUrl(url: string): ZooKeeperUrl {
  const { user, hosts, chroot = '/', query } = SHAPE.exec(url)?.groups ?? {}
  if (hosts === undefined)
    throw new TypeError('a ZooKeeper URL is zookeeper://user:password@host1:port,host2:port/chroot?option=value')
  // An '@' too many is part of a password that is not encoded. The errors below must not quote it as a host.
  if (url.split('@').length > (user === undefined ? 1 : 2)) throw unencoded()
  const { tls, ...options } = optionsIn(query)
  if (tls !== undefined && tls !== 'true' && tls !== 'false')
    throw new TypeError(`tls is true or false in a ZooKeeper URL; got '${tls}'`)
  const secure = tls === undefined ? options.ca !== undefined || options.cert !== undefined : tls === 'true'
  return {
    hosts: hostsIn(hosts),
    chroot: chrootOf(decoded(chroot)),
    tls: secure,
    ...options,
    ...(user === undefined ? {} : { auth: authIn(user) }),
  }
}

/** As the paths of nodes need it before them: without a slash at its end. */
export function chrootOf(path: string): string {
  const chroot = path.replace(/\/+$/, '')
  if (chroot === '') return ''
  if (!chroot.startsWith('/') || chroot.split('/').slice(1).some(isNoName))
    throw new TypeError(`a path in ZooKeeper is /name/name; got '${path}'`)
  return chroot
}

const isNoName = (name: string): boolean => name === '' || name === '.' || name === '..' || name.includes('\0')

function unencoded(): TypeError {
  return new TypeError(
    "in a ZooKeeper URL, user, password, chroot and options are percent-encoded: '@' is %40, ':' %3A, '?' %3F, '#' %23, '%' %25",
  )
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw unencoded()
  }
}

function authIn(text: string): ZooKeeperAuth {
  const colon = text.indexOf(':')
  if (colon < 1)
    throw new TypeError('a user in a ZooKeeper URL has a name and a password: zookeeper://user:password@host')
  return { scheme: 'digest', credentials: `${decoded(text.slice(0, colon))}:${decoded(text.slice(colon + 1))}` }
}

function hostsIn(text: string): readonly ZooKeeperEndpoint[] {
  return (text === '' ? '127.0.0.1' : text).split(',').map((host) => {
    const found = /^(?<name>\[[^\]]+\]|[^:[\]]+)(?::(?<port>\d{1,5}))?$/.exec(host)?.groups
    if (found?.name === undefined) throw new TypeError(`a host in a ZooKeeper URL is host:port; got '${host}'`)
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
      throw new TypeError(`unknown option '${name}' in a ZooKeeper URL; there are ${OPTIONS.join(', ')}`)
    options[known] = decoded(value.join('='))
  }
  return options
}
