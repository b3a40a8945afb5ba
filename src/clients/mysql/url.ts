/**
 * What a URL says:
 *
 *     mysql://user:password@host:3306/database
 *
 * or `mariadb://`, with options as a query: `name` (see engines/mysql/index.ts); `tls=true`; `ca`, a file with the
 * certificate of the authority; `socket`, a path instead of host and port. Messages say what is wrong without the URL,
 * which may hold a password.
 */
import { readFileSync } from 'node:fs'

/** As mysql2 wants it. */
export interface MysqlTarget {
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password: string
  readonly database: string
  readonly socketPath?: string
  /** A certificate of the authority may be that of another host: so the name in it is compared, too. */
  readonly ssl?: { readonly ca?: Buffer; readonly verifyIdentity: boolean }
}

/** What a URL says of our tables. */
export interface MysqlUrlOptions {
  /** What their names begin with. */
  readonly name?: string
}

const SHAPE =
  /^(?:mysql|mariadb):\/\/(?:(?<user>[^@/?#]*)@)?(?<host>\[[^\]]+\]|[^:/?#]*)(?::(?<port>\d{1,5}))?(?:\/(?<database>[^?#]*))?(?:\?(?<query>[^#]*))?$/i
const OPTIONS = ['name', 'tls', 'ca', 'socket'] as const
const PORT = 3306

export function parseUrl(url: string): { readonly target: MysqlTarget; readonly options: MysqlUrlOptions } {
  const { user = '', host = '', port, database = '', query } = SHAPE.exec(url)?.groups ?? {}
  if (!SHAPE.test(url)) throw new TypeError('a mysql URL is mysql://user:password@host:port/database?option=value')
  if (database === '') throw new TypeError('a mysql URL names the database: mysql://user:password@host:port/database')
  const { tls, ca, socket } = optionsIn(query)
  if (tls !== undefined && tls !== 'true' && tls !== 'false')
    throw new TypeError(`tls in a mysql URL must be true or false; got '${tls}'`)
  const [login = '', ...secret] = user.split(':')
  const target = {
    host: host === '' ? '127.0.0.1' : host.replaceAll(/[[\]]/g, ''),
    port: Number(port ?? PORT),
    user: decodeURIComponent(login),
    password: decodeURIComponent(secret.join(':')),
    database: decodeURIComponent(database),
    ...(socket === undefined ? {} : { socketPath: socket }),
    ...(tls === 'true' || ca !== undefined
      ? { ssl: { ...(ca === undefined ? {} : { ca: readFileSync(ca) }), verifyIdentity: socket === undefined } }
      : {}),
  }
  return { target, options: optionsOf(url) }
}

/** Also if the URL names no server. */
export function optionsOf(url: string): MysqlUrlOptions {
  const { name } = optionsIn(/\?([^#]*)/.exec(url)?.[1])
  return name === undefined ? {} : { name }
}

function optionsIn(query: string | undefined): { readonly [Name in (typeof OPTIONS)[number]]?: string } {
  const options: Record<string, string> = {}
  for (const [name, value] of new URLSearchParams(query)) {
    if (!(OPTIONS as readonly string[]).includes(name))
      throw new TypeError(`unknown option '${name}' in a mysql URL; known: ${OPTIONS.join(', ')}`)
    options[name] = value
  }
  return options
}
