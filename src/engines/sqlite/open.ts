/**
 * From a URL to the engine: `sqlite:` (the default file), `sqlite:relative/path`, `sqlite:/absolute/path` and
 * `sqlite:///absolute/path`, with options as a query.
 */
import { type SqliteEngine, type SqliteOptions, sqlite } from './index.ts'

type Option = (value: string) => Partial<SqliteOptions>

const OPTIONS: Readonly<Record<string, Option>> = {
  // Checked by `sqlite`.
  durability: (value) => ({ durability: value as 'normal' | 'full' }),
  allowNetworkFs: (value) => ({ allowNetworkFs: yesOrNo('allowNetworkFs', value) }),
}

function yesOrNo(name: string, value: string): boolean {
  if (value === 'true' || value === 'false') return value === 'true'
  throw new TypeError(`${name} in a sqlite: URL must be true or false; got '${value}'`)
}

export function openSqlite(url: string): SqliteEngine {
  const { path, query } = /^sqlite:(?<path>[^?#]*)(?:\?(?<query>[^#]*))?$/i.exec(url)?.groups ?? {}
  if (path === undefined) throw new TypeError(`a sqlite: URL is sqlite:path?option=value; got '${url}'`)
  let options: SqliteOptions = {}
  for (const [name, value] of new URLSearchParams(query)) {
    const option = OPTIONS[name]
    if (option === undefined)
      throw new TypeError(`unknown option '${name}' in a sqlite: URL; known: ${Object.keys(OPTIONS).join(', ')}`)
    options = { ...options, ...option(value) }
  }
  const file = pathOf(path)
  return sqlite(file === '' ? options : { ...options, file })
}

/** Two slashes announce a host, which a file does not have: `sqlite://name` would be a mistake that nobody notices. */
function pathOf(path: string): string {
  const match = /^\/\/(?<host>[^/]*)(?<rest>.*)$/s.exec(path)
  if (match === null) return decode(path)
  const { host, rest = '' } = match.groups ?? {}
  if (host === '' || host === 'localhost') return decode(rest)
  throw new TypeError(
    `'sqlite:${path}' names a host; write sqlite:${host}${rest} for a relative path, or sqlite:/path for an absolute one`,
  )
}

function decode(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    // A file name with a per cent sign in it.
    return path
  }
}
