/**
 * Admission: turn stale holders away at the door, before they cost anything.
 *
 * It remembers, in the memory of this process, the tokens it has seen, and answers 412 to lower ones. That is *not* a
 * fence: between the door and the storage behind it time passes, a second server has a memory of its own, and a restart
 * forgets. The fence is the guard at the storage. So what comes through the door carries its token on:
 * `admission.bearer(request)` is what the storage guard is given, and `admission.problem(error)` is how its refusal is
 * answered.
 *
 * It is typed by the few methods that `node:http`, Express, Fastify and Hono have.
 */
import { type Bearer, visit } from '../bearer.ts'
import { demand, type Marks, raised, type Touch, UNTOUCHED } from '../marks.ts'
import { HEADER, type Problem, problemOf, read, unfit } from './header.ts'

/** What node:http, Express and Fastify have of a request. */
export interface NodeRequest {
  readonly method?: string | undefined
  readonly url?: string | undefined
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
}

/** What node:http and Express have of a response. */
export interface NodeResponse {
  statusCode: number
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
}

/** What Fastify has of a reply. */
export interface FastifyReply {
  code(status: number): unknown
  header(name: string, value: string): unknown
  send(body: string): unknown
}

/** What Hono has of a context. */
export interface HonoContext {
  readonly req: { readonly method: string; readonly url: string; header(name: string): string | undefined }
}

/** A request, whatever brought it. */
export interface Arrival {
  readonly method: string
  readonly url: string
}

export interface AdmissionOptions {
  /**
   * What the request is about; the name that the storage guard uses too. Undefined: nothing that is protected, let it
   * through.
   */
  resource(request: Arrival): string | undefined
  /**
   * How many resources to remember: 10,000 unless given. Those not seen for longest are forgotten, which costs nothing
   * but work for the storage guard.
   */
  readonly remembered?: number
}

export interface Admission {
  /** Middleware of Express; with node:http, call it first and go on in `next`. */
  node(request: NodeRequest, response: NodeResponse, next: () => void): void
  /** A `preHandler` hook of Fastify. */
  fastify(request: NodeRequest, reply: FastifyReply): Promise<unknown>
  /** Middleware of Hono, and of whatever answers with a `Response`. */
  hono(context: HonoContext, next: () => Promise<void>): Promise<Response | undefined>
  /** Who was let in with this request (of Hono: its context); give it to the storage guard. Throws if nobody was. */
  bearer(request: object): Bearer
  /** What to answer when the storage guard has refused; undefined for any other error. */
  problem(error: unknown): Problem | undefined
}

const PROBLEM_TYPE = 'application/problem+json'
/** Methods that change nothing (RFC 9110, 9.2.1). */
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE'])

export function admission(options: AdmissionOptions): Admission {
  const marks = new Memory(options.remembered ?? 10_000)
  const bearers = new WeakMap<object, Bearer>()

  /** The problem, or undefined if it may come in. */
  function admit(request: object, { method, url }: Arrival, header: string | undefined): Problem | undefined {
    const resource = options.resource({ method, url })
    if (resource === undefined) return undefined
    const found = read(header, resource)
    if ('status' in found) return found
    const touch = SAFE.has(method) ? 'read' : 'write'
    try {
      marks.come(found, touch)
    } catch (error) {
      return problemOf(error) ?? unfit(resource, error as Error)
    }
    bearers.set(request, found)
    return undefined
  }

  const ofNode = (request: NodeRequest): Problem | undefined => {
    const header = request.headers[HEADER.toLowerCase()]
    return admit(
      request,
      { method: request.method ?? '', url: request.url ?? '' },
      typeof header === 'string' ? header : header?.join(','),
    )
  }

  return {
    node: (request, response, next) => {
      const problem = ofNode(request)
      if (problem === undefined) next()
      else answer(response, problem)
    },
    fastify: async (request, reply) => {
      const problem = ofNode(request)
      if (problem === undefined) return undefined
      reply.code(problem.status)
      reply.header('content-type', PROBLEM_TYPE)
      reply.send(JSON.stringify(problem))
      return reply
    },
    hono: async (context, next) => {
      const { method, url } = context.req
      const problem = admit(context, { method, url }, context.req.header(HEADER))
      if (problem !== undefined) return responseOf(problem)
      await next()
      return undefined
    },
    bearer: (request) => {
      const found = bearers.get(request)
      if (found === undefined) throw new TypeError('this request was not let in by this admission')
      return found
    },
    problem: problemOf,
  }
}

/** Answer with a problem document, where responses are those of node:http. */
export function answer(response: NodeResponse, problem: Problem): void {
  response.statusCode = problem.status
  response.setHeader('content-type', PROBLEM_TYPE)
  response.end(JSON.stringify(problem))
}

/** The same as a `Response`. */
export function responseOf(problem: Problem): Response {
  return new Response(JSON.stringify(problem), { status: problem.status, headers: { 'content-type': PROBLEM_TYPE } })
}

/** Marks of the resources seen last. */
class Memory {
  readonly #marks = new Map<string, Marks>()
  readonly #most: number

  constructor(most: number) {
    if (!Number.isSafeInteger(most) || most < 1)
      throw new RangeError(`remembered must be a whole number, 1 or more; got ${most}`)
    this.#most = most
  }

  come(bearer: Bearer, touch: Touch): void {
    const { resource, token } = visit(bearer, touch)
    const marks = this.#marks.get(resource) ?? UNTOUCHED
    demand(resource, token, touch, marks)
    // A Map keeps the order of insertion: the first is the one not seen for longest.
    this.#marks.delete(resource)
    this.#marks.set(resource, raised(marks, token, touch))
    if (this.#marks.size > this.#most) this.#marks.delete(this.#marks.keys().next().value as string)
  }
}
