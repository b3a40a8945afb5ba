/**
 * `holdfast/http`: `Idempotency-Key` for HTTP servers. A request with a key is handled once, and its retries get the
 * stored response.
 *
 *     const keys = idempotency(locks, { scope: ({ raw }) => userOf(raw) })
 *     app.post('/payments', keys.node, handler)       // Express; keys.fastify and keys.hono are for the others
 *
 * The handler of a framework is the work of `once`. Its response is held back until it is stored: what a client has
 * been told is what its retries are told. A response with a status of 500 or more, or one that asks to come again (408,
 * 425, 429), is told, and not stored: the retry is handled anew, with the same `attempt.id`.
 *
 * `limited(limit, { key })` answers 429 to what a rate limit does not allow (rate.ts).
 *
 * `httpProblem(error)` is what to answer when a handler threw an error of Holdfast (problems.ts).
 *
 * Read door.ts first; node.ts, fastify.ts and hono.ts hold back the responses of each framework.
 */
import { checkOptions } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import type { Attempt } from '../once/attempt.ts'
import { IDEMPOTENCY_OPTIONS, IdempotencyDoor, type IdempotencyOptions } from './door.ts'
import { type FastifyPlugin, fastifyPlugin } from './fastify.ts'
import { type HonoMiddleware, honoMiddleware } from './hono.ts'
import { type NodeMiddleware, nodeMiddleware } from './node.ts'

export type { Attempt } from '../once/attempt.ts'
export type { OnceOptions } from '../once/options.ts'
export type { IdempotencyOptions, IdempotentRequest } from './door.ts'
export type {
  FastifyPlugin,
  IdempotentFastify,
  IdempotentFastifyReply,
  IdempotentFastifyRequest,
} from './fastify.ts'
export type { HonoMiddleware, IdempotentHonoContext } from './hono.ts'
export type { NodeMiddleware } from './node.ts'
export { type HttpProblem, httpProblem } from './problems.ts'
export {
  type Limited,
  type LimitedFastifyReply,
  type LimitedHonoContext,
  type LimitedOptions,
  limited,
} from './rate.ts'

/**
 * Middleware for each framework, and what the handler may want to know. `Given`: the attempt, which every request has
 * where a key is required.
 */
export interface Idempotency<Given extends Attempt | undefined = Attempt | undefined> {
  /** Middleware of Express; with node:http, call it first and go on in `next`. */
  readonly node: NodeMiddleware
  /** A plugin of Fastify: `await app.register(keys.fastify)`, before the routes. */
  readonly fastify: FastifyPlugin
  /** Middleware of Hono. */
  readonly hono: HonoMiddleware
  /**
   * The attempt that a handler runs in: give `id` to a payment provider, and use `step`. `request` is that of the
   * framework; of Hono, its context. Undefined for a request without a key. With `required: true` it throws instead:
   * such a request has not come through this middleware, and nothing keeps it from being handled twice.
   */
  attempt(request: object): Given
}

/** Requests with an `Idempotency-Key` are handled once. Throws `UnsupportedError` where the engine has no store. */
export function idempotency(
  locks: Locks,
  options: IdempotencyOptions & { readonly required: true },
): Idempotency<Attempt>
export function idempotency(locks: Locks, options: IdempotencyOptions): Idempotency
export function idempotency(locks: Locks, options: IdempotencyOptions): Idempotency {
  checkOptions('idempotency()', options, IDEMPOTENCY_OPTIONS)
  const door = new IdempotencyDoor(locks, options)
  return {
    node: nodeMiddleware(door),
    fastify: fastifyPlugin(door),
    hono: honoMiddleware(door),
    attempt: (request) => {
      const attempt = door.attempts.get(request)
      if (attempt === undefined && options.required === true) throw new TypeError(NOT_GUARDED)
      return attempt
    },
  }
}

const NOT_GUARDED =
  'this request has no attempt: put the middleware of idempotency() before its handler, and its method into methods'
