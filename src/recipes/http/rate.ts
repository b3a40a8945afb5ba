/**
 * `limited(limit, …)`: middleware that answers 429 to what a rate limit does not allow, and says in the headers of all
 * other responses what is left.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { never } from '../../core/never.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { headers } from '../rate-limit/headers.ts'
import type { RateLimit } from '../rate-limit/limiter.ts'
import type { TakeOptions } from '../rate-limit/options.ts'
import type { RateVerdict } from '../rate-limit/verdict.ts'
import { failRequest, type NodeMiddleware, run } from './node.ts'
import { documentOf, PROBLEM_TYPE } from './problem-document.ts'
import { httpProblem, isPassing } from './problems.ts'

/** A request, as the framework has it: of Hono, its context. */
export interface LimitedOptions<Request> extends Omit<TakeOptions, 'cost' | 'signal'> {
  /**
   * Whose request it is: a user, an API key, an address. Undefined: it is not limited, unless its client had left
   * before this was asked: then it is not handled, since a connection that has ended has no address.
   */
  key(request: Request): string | undefined | Promise<string | undefined>
  /** How many it counts for: 1 unless given. */
  cost?(request: Request): number
}

const LIMITED_OPTIONS: OptionNames<LimitedOptions<unknown>> = { key: true, cost: true, wait: true }

/** What Fastify has of a reply. */
export interface LimitedFastifyReply {
  code(status: number): LimitedFastifyReply
  headers(fields: Record<string, string>): LimitedFastifyReply
  send(body: unknown): unknown
}

/** What Hono has of a context. */
export interface LimitedHonoContext {
  header(name: string, value: string): void
  readonly res: { readonly headers: { has(name: string): boolean } }
}

/** Middleware for each framework. */
export interface Limited<Request> {
  /** Middleware of Express; with node:http, call it first and go on in `next`. */
  readonly node: NodeMiddleware
  /**
   * A hook of Fastify: `app.addHook('onRequest', api.fastify)`. It never settles when it has answered: Fastify would go
   * on to the handler.
   */
  readonly fastify: (request: Request, reply: LimitedFastifyReply) => Promise<unknown>
  /** Middleware of Hono. */
  readonly hono: (context: Request & LimitedHonoContext, next: () => Promise<void>) => Promise<Response | undefined>
}

const STATUS = 429

/** What becomes of a request: headers of its response, and the response itself where it is refused. */
interface Decision {
  readonly fields: readonly (readonly [name: string, value: string])[]
  readonly refusal?: { readonly status: number; readonly body: string }
}

/** Its client is not told of it any more. */
const LEFT: Decision = { fields: [], refusal: { status: 503, body: '' } }

/**
 * Whether its client has left, on a server of Node. A connection that has ended has no address: such a request would
 * not be limited, and clients that leave at once could send as many as they like.
 */
function hasLeft(request: unknown): boolean {
  const { raw, env } = request as { readonly raw?: unknown; readonly env?: { readonly incoming?: unknown } }
  return [request, raw, env?.incoming].some(
    (one) => (one as { socket?: { destroyed?: boolean } } | null | undefined)?.socket?.destroyed === true,
  )
}

/**
 * Requests are let through as often as `limit` allows. What it cannot decide now is answered with 503: the server is
 * away, or this process is ending. Any other error is the error of the request.
 */
export function limited<Request = IncomingMessage>(
  limit: RateLimit,
  options: LimitedOptions<Request>,
): Limited<Request> {
  checkOptions('limited()', options, LIMITED_OPTIONS)
  if (typeof options.key !== 'function') throw new TypeError('limited takes key, a function of the request')
  const judge = async (request: Request): Promise<Decision> => {
    const { key, cost, wait } = options
    const left = hasLeft(request)
    const whose = await key(request)
    if (whose === undefined) return left ? LEFT : { fields: [] }
    const take = { cost: cost?.(request) ?? 1, ...(wait === undefined ? {} : { wait }) }
    return await limit.take(whose, take).then(decisionOf, undecided)
  }
  return {
    node: (request, response, next) => {
      const answer = async ({ fields, refusal }: Decision): Promise<void> => {
        // Its client was answered before, by a time-out for example: the rest is called as it would be without this.
        if (!response.headersSent) for (const [name, value] of fields) response.setHeader(name, value)
        if (refusal === undefined) await run(next)
        else if (!response.writableEnded) refuse(response, refusal)
      }
      const fail = (error: unknown): void => failRequest(request, response, next, error)
      void judge(request as Request)
        .then(answer)
        .catch(fail)
    },
    fastify: async (request, reply) => {
      const { fields, refusal } = await judge(request)
      reply.headers(Object.fromEntries(fields))
      if (refusal === undefined) return undefined
      // As bytes: a serializer of the application is for strings and objects, and would write it as JSON again.
      reply.code(refusal.status).send(Buffer.from(refusal.body))
      return never()
    },
    hono: async (context, next) => {
      const { fields, refusal } = await judge(context)
      if (refusal !== undefined)
        return new Response(refusal.body, {
          status: refusal.status,
          headers: fields.map(([name, value]) => [name, value]),
        })
      await next()
      // Told before, they would not be in a `Response` that the handler has made itself. What a limit behind this one
      // has told stays, as in other frameworks: it may have refused the request.
      for (const [name, value] of fields) if (!context.res.headers.has(name)) context.header(name, value)
      return undefined
    },
  }
}

function decisionOf(verdict: RateVerdict): Decision {
  const fields = Object.entries(headers(verdict))
  if (verdict.allowed) return { fields }
  const body = JSON.stringify({ ...documentOf('rate-limited', STATUS), retryAfterMs: verdict.retryAfterMs })
  return { fields: [...fields, ['content-type', PROBLEM_TYPE]], refusal: { status: STATUS, body } }
}

function undecided(error: unknown): Decision {
  const about = isPassing(error) ? httpProblem(error) : undefined
  if (about === undefined) throw error
  return {
    fields: Object.entries(about.headers),
    refusal: { status: about.status, body: JSON.stringify(about.body) },
  }
}

function refuse(response: ServerResponse, { status, body }: NonNullable<Decision['refusal']>): void {
  if (response.headersSent) throw new TypeError('the response to this request was begun before limited() refused it')
  response.statusCode = status
  response.end(body)
}
