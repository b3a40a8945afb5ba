/**
 * What a guard is given: a lease, or what is known of one. What no token can make safe is refused here, with the
 * reason, before anything is asked of the resource.
 */
import { EngineError } from '../core/errors.ts'
import { checkKey } from '../core/keys.ts'
import { type Access, FORMAT } from './marks.ts'

/**
 * A lease; or what is known of one that another process holds: `{ key, token, shared }` out of a header, a queue, the
 * environment of a command.
 */
export interface LeaseLike {
  readonly key: string
  readonly token: bigint | null
  readonly shared: boolean
  /** A lease of several keys has one for each. */
  readonly tokens?: ReadonlyMap<string, bigint | null>
}

/** What is compared with the marks: which resource, and with which token. */
export interface ResourceToken {
  readonly resource: string
  readonly token: bigint
}

/** What backends can store and compare, with one number above it to spare. */
const HIGHEST = 2n ** 63n - 2n

/**
 * What to compare with the marks; throws if this lease can never have such an access. The resource is called like the
 * key of the lease, unless the caller says otherwise.
 */
export function resourceToken(lease: LeaseLike, access: Access, resource: string = lease?.key): ResourceToken {
  // What tryAcquire() answers when the lock is busy comes here, too.
  if (lease === undefined || lease === null)
    throw new TypeError(`a guard takes a lease, or { key, token, shared }; got ${String(lease)}`)
  checkKey(resource)
  const { key, shared } = lease
  if (typeof shared !== 'boolean')
    throw new TypeError(`a guard takes a lease, or { key, token, shared }; shared was ${typeof shared}`)
  if (access === 'write' && shared) {
    throw new TypeError(
      `a write to '${resource}' under a shared lease of '${key}' is refused by the guard: others may hold beside it, ` +
        'and their tokens do not say whose write is the later one. ' +
        'Write under a mutex, a write lock, or the whole of a semaphore',
    )
  }
  return { resource, token: tokenOf(lease, resource) }
}

function tokenOf(lease: LeaseLike, resource: string): bigint {
  const token = lease.token ?? lease.tokens?.get(resource)
  if (typeof token === 'bigint') {
    if (token >= 0n && token <= HIGHEST) return token
    throw new RangeError(`a token must be from 0 to ${HIGHEST}; got ${token}`)
  }
  if (lease.tokens !== undefined && lease.tokens.size > 1 && !lease.tokens.has(resource)) {
    throw new TypeError(
      `a lease of several keys has a token for each of them, and '${resource}' is none of them: ` +
        'give the guard { key, token: lease.tokens.get(key), shared: false } of the key that protects it',
    )
  }
  if (token === null || token === undefined) {
    throw new TypeError(
      `a lease of '${lease.key}' without a token is refused by the guard: its engine has no fencing, ` +
        'so nothing tells an old holder from a new one. Use an engine whose traits say fencing',
    )
  }
  throw new TypeError(`a token must be a bigint; got ${typeof token}`)
}

/** Marks that a newer Holdfast has stored are not guessed at. */
export function newerFormat(backend: string, resource: string): EngineError {
  const message = `the marks of '${resource}' were stored by a newer Holdfast (this one knows format ${FORMAT}): update Holdfast here`
  return new EngineError(backend, message, { outcome: 'not-applied', transient: false })
}
