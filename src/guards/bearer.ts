/**
 * Who comes to a guard: somebody with a token. What no token can make safe is refused here, with the reason, before
 * anything is asked of the resource.
 */
import { EngineError } from '../core/errors.ts'
import { checkKey } from '../core/keys.ts'
import { FORMAT, type Touch } from './marks.ts'

/**
 * A lease; or what is known of one that somebody else holds: `{ key, token, shared }` out of a header, a queue, the
 * environment of a command.
 */
export interface Bearer {
  readonly key: string
  readonly token: bigint | null
  readonly shared: boolean
  /** A lease of several keys has one for each. */
  readonly tokens?: ReadonlyMap<string, bigint | null>
}

export interface Visit {
  readonly resource: string
  readonly token: bigint
}

/** What backends can store and compare, with one number above it to spare. */
const HIGHEST = 2n ** 63n - 2n

/** What to show to the marks. The resource is called like the key of the lease, unless the caller says otherwise. */
export function visit(bearer: Bearer, touch: Touch, resource: string = bearer?.key): Visit {
  // What tryAcquire() answers when the lock is busy comes here, too.
  if (bearer === undefined || bearer === null)
    throw new TypeError(`a guard takes a lease, or { key, token, shared }; got ${String(bearer)}`)
  checkKey(resource)
  const { key, shared } = bearer
  if (typeof shared !== 'boolean')
    throw new TypeError(`a guard takes a lease, or { key, token, shared }; shared was ${typeof shared}`)
  if (touch === 'write' && shared) {
    throw new TypeError(
      `a write to '${resource}' under a shared lease of '${key}' is refused: others may hold beside it, and their tokens do not say whose write is the later one. ` +
        'Write under a mutex, a write lock, or the whole of a semaphore',
    )
  }
  return { resource, token: tokenOf(bearer, resource) }
}

function tokenOf(bearer: Bearer, resource: string): bigint {
  const token = bearer.token ?? bearer.tokens?.get(resource)
  if (typeof token === 'bigint') {
    if (token >= 0n && token <= HIGHEST) return token
    throw new RangeError(`a token must be from 0 to ${HIGHEST}; got ${token}`)
  }
  if (bearer.tokens !== undefined && bearer.tokens.size > 1 && !bearer.tokens.has(resource)) {
    throw new TypeError(
      `a lease of several keys has a token for each of them, and '${resource}' is none of them: give the guard { key, token: lease.tokens.get(key), shared: false } of the key that protects it`,
    )
  }
  if (token === null || token === undefined) {
    throw new TypeError(
      `a lease of '${bearer.key}' without a token is refused: its engine has no fencing, so nothing tells an old holder from a new one. Use an engine whose traits say fencing`,
    )
  }
  throw new TypeError(`a token must be a bigint; got ${typeof token}`)
}

/** Marks that a newer Holdfast has stored are not guessed at. */
export function newer(backend: string, resource: string): EngineError {
  const message = `the marks of '${resource}' were stored by a newer Holdfast (this one knows format ${FORMAT}): update Holdfast here`
  return new EngineError(backend, message, { outcome: 'not-applied', transient: false })
}
