/**
 * Reads a URL that names several hosts: `scheme://user:password@host1:port,host2/path?option=value`. Node has no reader
 * for a list of hosts. Everything in the URL is percent-encoded.
 *
 * Errors never quote the URL, which may hold a password.
 */
import type { Endpoint } from './endpoint.ts'

export interface HostListUrlFormat<Option extends string> {
  /** With its article, for messages: `an etcd URL`. */
  readonly name: string
  /** For messages, too: what such a URL looks like. */
  readonly example: string
  readonly schemes: readonly string[]
  /** Of a host that names none. */
  port(scheme: string): number
  readonly options: readonly Option[]
}

export interface HostListUrl<Option extends string> {
  /** In lower case. */
  readonly scheme: string
  /** Without a password if there is no colon. */
  readonly user?: { readonly name: string; readonly password?: string }
  /** At least one: this machine unless given. */
  readonly hosts: readonly Endpoint[]
  /** The names between slashes. */
  readonly path: readonly string[]
  readonly options: { readonly [Name in Option]?: string }
}

const SHAPE =
  /^(?<scheme>[a-z][a-z0-9+-]*):\/\/(?:(?<user>[^@/?#]*)@)?(?<hosts>[^/?#]*)(?:\/(?<path>[^?#]*))?(?:\?(?<query>[^#]*))?$/i
const HOST = /^(?<name>\[[^\]]+\]|[^:[\]]+)(?::(?<port>\d{1,5}))?$/

export function parseHostListUrl<Option extends string>(
  url: string,
  format: HostListUrlFormat<Option>,
): HostListUrl<Option> {
  const { scheme: written = '', user, hosts, path, query = '' } = SHAPE.exec(url)?.groups ?? {}
  const scheme = written.toLowerCase()
  if (hosts === undefined || !format.schemes.includes(scheme))
    throw new TypeError(`${format.name} is ${format.example}`)
  // An '@' too many is part of a password that is not encoded. The errors below must not quote it as a host.
  if (url.split('@').length > (user === undefined ? 1 : 2)) throw unencoded(format.name)
  const decode = (text: string): string => decoded(text, format.name)
  return {
    scheme,
    ...(user === undefined ? {} : { user: userIn(user, decode) }),
    hosts: (hosts === '' ? '127.0.0.1' : hosts)
      .split(',')
      .map((host) => hostIn(host, format.port(scheme), format.name)),
    path: path === undefined ? [] : path.split('/').map(decode),
    options: optionsIn(query, format, decode),
  }
}

/** What an option says that is `true` or `false`; undefined if it is not given. */
export function flagIn(
  format: { readonly name: string },
  option: string,
  value: string | undefined,
): boolean | undefined {
  if (value === undefined) return undefined
  if (value !== 'true' && value !== 'false')
    throw new TypeError(`in ${format.name}, ${option} is true or false; got '${value}'`)
  return value === 'true'
}

function unencoded(name: string): TypeError {
  return new TypeError(
    `in ${name}, user, password, path and options are percent-encoded: '@' is %40, ':' %3A, '/' %2F, '?' %3F, '#' %23, '%' %25`,
  )
}

function decoded(text: string, name: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw unencoded(name)
  }
}

function userIn(text: string, decode: (text: string) => string): { readonly name: string; readonly password?: string } {
  const colon = text.indexOf(':')
  if (colon < 0) return { name: decode(text) }
  return { name: decode(text.slice(0, colon)), password: decode(text.slice(colon + 1)) }
}

function hostIn(text: string, port: number, name: string): Endpoint {
  const found = HOST.exec(text)?.groups
  if (found?.name === undefined) throw new TypeError(`a host in ${name} is host:port; got '${text}'`)
  return { host: found.name.replaceAll(/[[\]]/g, ''), port: Number(found.port ?? port) }
}

function optionsIn<Option extends string>(
  query: string,
  { name, options: known }: HostListUrlFormat<Option>,
  decode: (text: string) => string,
): { readonly [Name in Option]?: string } {
  const options: { [Name in Option]?: string } = {}
  for (const pair of query.split('&')) {
    if (pair === '') continue
    const [written = '', ...value] = pair.split('=')
    const option = known.find((one) => one === written)
    if (option === undefined) throw new TypeError(`unknown option '${written}' in ${name}; known: ${known.join(', ')}`)
    options[option] = decode(value.join('='))
  }
  return options
}
