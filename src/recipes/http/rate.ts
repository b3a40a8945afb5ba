/**
 * `limited(limit, …)`: middleware that answers 429 to what a rate limit does not allow, and says in the headers of all
 * other responses what is left.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { headers } from '../rate-limit/headers.ts'
import type { RateLimit } from '../rate-limit/limiter.ts'
import type { TakeOptions } from '../rate-limit/options.ts'
import type { RateVerdict } from '../rate-limit/verdict.ts'
import type { NodeMiddleware } from './node.ts'

/** A request, as the framework has it: of Hono, its context. */
export interface LimitedOptions<Request> extends Omit<TakeOptions, 'cost' | 'signal'> {
  /** Whose request it is: a user, an API key, an address. Undefined: it is not limited. */
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
}

/** Middleware for each framework. */
export interface Limited<Request> {
  /** Middleware of Express; with node:http, call it first and go on in `next`. */
  readonly node: NodeMiddleware
  /** A hook of Fastify: `app.addHook('onRequest', api.fastify)`. */
  readonly fastify: (request: Request, reply: LimitedFastifyReply) => Promise<unknown>
  /** Middleware of Hono. */
  readonly hono: (context: Request & LimitedHonoContext, next: () => Promise<void>) => Promise<Response | undefined>
}

const STATUS = 429
const TYPE = 'application/problem+json'

/** Requests are let through as often as `limit` allows. What it cannot decide is the error of the request. */
export function limited<Request = IncomingMessage>(
  limit: RateLimit,
  options: LimitedOptions<Request>,
): Limited<Request> {
  checkOptions('limited()', options, LIMITED_OPTIONS)
  if (typeof options.key !== 'function') throw new TypeError('limited takes key, a function of the request')
  const judge = async (request: Request): Promise<RateVerdict | undefined> => {
    const { key, cost, wait } = options
    const whose = await key(request)
    if (whose === undefined) return undefined
    return await limit.take(whose, { cost: cost?.(request) ?? 1, ...(wait === undefined ? {} : { wait }) })
  }
  return {
    node: (request, response, next) => {
      const answer = (verdict: RateVerdict | undefined): void => {
        for (const [name, value] of fieldsOf(verdict)) response.setHeader(name, value)
        if (verdict?.allowed === false) refuse(response, verdict)
        else next()
      }
      judge(request as Request).then(answer, (error: unknown) => fail(request, response, next, error))
    },
    fastify: async (request, reply) => {
      const verdict = await judge(request)
      reply.headers(Object.fromEntries(fieldsOf(verdict)))
      if (verdict?.allowed !== false) return undefined
      return reply.code(STATUS).headers({ 'content-type': TYPE }).send(problem(verdict))
    },
    hono: async (context, next) => {
      const verdict = await judge(context)
      const fields = fieldsOf(verdict)
      if (verdict?.allowed === false)
        return new Response(problem(verdict), { status: STATUS, headers: [...fields, ['content-type', TYPE]] })
      for (const [name, value] of fields) context.header(name, value)
      await next()
      return undefined
    },
  }
}

function fieldsOf(verdict: RateVerdict | undefined): [string, string][] {
  return verdict === undefined ? [] : Object.entries(headers(verdict))
}

function problem({ retryAfterMs }: RateVerdict): string {
  return JSON.stringify({ title: 'Too many requests', status: STATUS, retryAfterMs })
}

function refuse(response: ServerResponse, verdict: RateVerdict): void {
  response.statusCode = STATUS
  response.setHeader('content-type', TYPE)
  response.end(problem(verdict))
}

function fail(
  request: IncomingMessage,
  response: ServerResponse,
  next: (error?: unknown) => void,
  error: unknown,
): void {
  // A `next` of node:http that takes no error would handle the request, and nothing would limit it.
  if (next.length > 0 || 'originalUrl' in request) {
    next(error)
    return
  }
  process.emitWarning(error instanceof Error ? error : String(error))
  response.statusCode = 500
  response.end()
}
