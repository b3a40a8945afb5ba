/**
 * What a URL says:
 *
 *     zookeeper://user:password@host1:2181,host2,host3/chroot
 *
 * with options as a query: `path`, the node under which locks are; `layout`, how they are named; `tls=true`; `ca`, a
 * file with the certificate of the authority; `cert` and `key`, files with a certificate of our own and its key. A user
 * and a password are the credentials of the scheme `digest`.
 */
import type { Endpoint } from '../shared/endpoint.ts'
import { flagIn, type HostListUrlFormat, parseHostListUrl } from '../shared/host-list-url.ts'
import type { ZooKeeperAuth } from './session-connection.ts'

export interface ZooKeeperUrl {
  readonly hosts: readonly Endpoint[]
  readonly chroot: string
  readonly auth?: ZooKeeperAuth
  readonly tls: boolean
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly path?: string
  readonly layout?: string
}

const FORMAT: HostListUrlFormat<'path' | 'layout' | 'tls' | 'ca' | 'cert' | 'key'> = {
  name: 'a ZooKeeper URL',
  example: 'zookeeper://user:password@host1:port,host2:port/chroot?option=value',
  schemes: ['zookeeper'],
  port: () => 2181,
  options: ['path', 'layout', 'tls', 'ca', 'cert', 'key'],
}

export function parseZooKeeperUrl(url: string): ZooKeeperUrl {
  const { hosts, user, path, options: written } = parseHostListUrl(url, FORMAT)
  const { tls: flag, ...options } = written
  const tls = flagIn(FORMAT, 'tls', flag) ?? (options.ca !== undefined || options.cert !== undefined)
  const chroot = chrootOf(`/${path.join('/')}`)
  return { hosts, chroot, tls, ...options, ...(user === undefined ? {} : { auth: digestOf(user) }) }
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

function digestOf({ name, password }: { readonly name: string; readonly password?: string }): ZooKeeperAuth {
  if (name === '' || password === undefined)
    throw new TypeError('a user in a ZooKeeper URL has a name and a password: zookeeper://user:password@host')
  return { scheme: 'digest', credentials: `${name}:${password}` }
}
