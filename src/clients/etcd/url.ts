/**
 * What a URL says:
 *
 *     etcd://user:password@host1:2379,host2,host3
 *
 * with options as a query: `prefix`; `tls=true`; `ca`, a file with the certificate of the authority; `cert` and `key`,
 * files with a certificate of our own and its key.
 */
import type { Endpoint } from '../shared/endpoint.ts'
import { flagIn, type HostListUrlFormat, parseHostListUrl } from '../shared/host-list-url.ts'
import type { EtcdUser } from './client.ts'

export interface EtcdUrl {
  readonly hosts: readonly Endpoint[]
  readonly user?: EtcdUser
  readonly tls: boolean
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly prefix?: string
}

const FORMAT: HostListUrlFormat<'prefix' | 'tls' | 'ca' | 'cert' | 'key'> = {
  name: 'an etcd URL',
  example: 'etcd://user:password@host1:port,host2:port?option=value',
  schemes: ['etcd'],
  port: () => 2379,
  options: ['prefix', 'tls', 'ca', 'cert', 'key'],
}

export function parseEtcdUrl(url: string): EtcdUrl {
  const { hosts, user, path, options: written } = parseHostListUrl(url, FORMAT)
  if (path.join('') !== '') throw new TypeError(`${FORMAT.name} is ${FORMAT.example}, without a path`)
  const { tls: flag, ...options } = written
  const tls = flagIn(FORMAT, 'tls', flag) ?? (options.ca !== undefined || options.cert !== undefined)
  return { hosts, tls, ...options, ...(user === undefined ? {} : { user: withPassword(user) }) }
}

function withPassword({ name, password }: { readonly name: string; readonly password?: string }): EtcdUser {
  if (name === '' || password === undefined)
    throw new TypeError('a user in an etcd URL has a name and a password: etcd://user:password@host')
  return { name, password }
}
