/**
 * What `console.log` and `JSON.stringify` show of our objects: what a person who looks for a fault wants to see, and
 * nothing of the insides, which are large, and may have secrets in them.
 */
import { type InspectOptions, inspect } from 'node:util'
import type { Engine } from './engine.ts'
import type { Lease } from './lease.ts'
import { redactUrl } from './redact.ts'

/** What is shown of a lease. */
export interface LeaseView {
  readonly key: string
  /** A decimal string: JSON has no integers of this size. */
  readonly token: string | null
  readonly held: boolean
  /** Whole milliseconds. */
  readonly remainingMs: number
}

export function viewLease({ key, token, held, remainingMs }: Lease): LeaseView {
  return { key, token: token === null ? null : String(token), held, remainingMs: Math.floor(remainingMs) }
}

interface Viewed {
  toJSON(): object
}

/**
 * Let `console.log` show the objects of a class as `Name { ... }`, with what their `toJSON` answers; in a text, like
 * `${lease}`, they are the same, on one line.
 */
export function showAs(name: string, type: { readonly prototype: Viewed }): void {
  Object.defineProperties(type.prototype, {
    [inspect.custom]: {
      value(this: Viewed, depth: number, options: InspectOptions): string {
        return show(name, this.toJSON(), depth, options)
      },
    },
    toString: {
      value(this: Viewed): string {
        return show(name, this.toJSON(), 0, { breakLength: Number.POSITIVE_INFINITY })
      },
      writable: true,
      configurable: true,
    },
  })
}

function show(name: string, view: object, depth: number, options: InspectOptions): string {
  return depth < 0 ? `[${name}]` : `${name} ${inspect(view, options)}`
}

/** Where `engine` keeps its lines, as `--url` takes it, but for a password; undefined if that is not known. */
export function shownUrl(engine: Engine): string | undefined {
  const { url, file } = 'toJSON' in engine ? (engine as Engine & ShownEngine).toJSON() : {}
  return url ?? (file === undefined ? undefined : `sqlite:${file}`)
}

interface ShownEngine {
  toJSON(): { readonly url?: string; readonly file?: string }
}

/** Let `engine` be shown by its name, and by where it keeps its lines if that is known. */
export function showEngine<Shown extends Engine>(
  engine: Shown,
  where: { url?: string | undefined; file?: string } = {},
): Shown {
  const { url, file } = where
  const view = {
    name: engine.name,
    ...(url === undefined ? {} : { url: redactUrl(url) }),
    ...(file === undefined ? {} : { file }),
  }
  const { name } = engine.constructor
  return Object.defineProperties(engine, {
    toJSON: { value: () => view, configurable: true },
    [inspect.custom]: {
      value: (depth: number, options: InspectOptions) => show(name, view, depth, options),
      configurable: true,
    },
  })
}
