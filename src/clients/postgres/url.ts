/**
 * What a URL says:
 *
 *     postgres://user:password@host:5432/database
 *
 * with what pg takes as a query (`sslmode`, `application_name`, ...), and of our own `schema`, `name` and `listenUrl`
 * (see setup.ts).
 */

export interface UrlOptions {
  readonly schema?: string
  readonly name?: string
  readonly listenUrl?: string
}

const OURS = ['schema', 'name', 'listenUrl'] as const

/** The options of ours that a URL has, and the URL without them. */
export function split(url: string): { readonly url: string; readonly options: UrlOptions } {
  const [address = '', query] = url.split(/\?(.*)/s)
  const parameters = new URLSearchParams(query)
  const options: Record<string, string> = {}
  for (const name of OURS) {
    const value = parameters.get(name)
    if (value !== null) options[name] = value
    parameters.delete(name)
  }
  const rest = parameters.toString()
  return { url: rest === '' ? address : `${address}?${rest}`, options }
}
