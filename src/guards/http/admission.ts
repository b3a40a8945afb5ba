/**
 * Admission: turn stale holders away at the door, before they cost anything.
 *
 * It remembers, in the memory of this process, the tokens it has seen, and answers 412 to lower ones. That is *not* a
 * guard: between the door and the storage behind it time passes, a second server has a memory of its own, and a restart
 * forgets. The guard is at the storage. So what comes through the door carries its token on: `admission.lease(request)`
 * is what the storage guard is given, and `admission.problem(error)` is how its refusal is
 * answered.
 *
 * It is typed by the few methods that `node:http`, Express, Fastify and Hono have.
 */
import { never } from '../../core/never.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { type LeaseLike, resourceToken } from '../lease-like.ts'
import { type Access, checkToken, type Marks, NO_MARKS, raiseMarks } from '../marks.ts'
import { HEADER, leaseOf, PROBLEM_TYPE, type Problem, problemOf, unfit } from './header.ts'

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

/** What is known of a request in every framework. */
export interface RequestLine {
  readonly method: string
  readonly url: string
}

/** Options of `admission()`. */
export interface AdmissionOptions {
  /**
   * What the request is about; the name that the storage guard uses too. Undefined: nothing that is protected, let it
   * through.
   */
  resource(request: RequestLine): string | undefined
  /**
   * How many resources to remember: 10,000 unless given. Those not seen for longest are forgotten, which costs nothing
   * but work for the storage guard.
   */
  readonly remembered?: number
}

/** Middleware for several frameworks, and what goes on from it to the guard of the storage. */
export interface Admission {
  /** Middleware of Express; with node:http, call it first and go on in `next`. */
  node(request: NodeRequest, response: NodeResponse, next: () => void): void
  /** A `preHandler` hook of Fastify. It never settles when it has answered: Fastify would go on to the handler. */
  fastify(request: NodeRequest, reply: FastifyReply): Promise<unknown>
  /** Middleware of Hono, and of other frameworks that answer with a `Response`. */
  hono(context: HonoContext, next: () => Promise<void>): Promise<Response | undefined>
  /**
   * The lease of the client that was let in with this request (of Hono: its context); give it to the storage guard.
   * Throws for a request that was not let in.
   */
  lease(request: object): LeaseLike
  /** What to answer when the storage guard has refused; undefined for any other error. */
  problem(error: unknown): Problem | undefined
}

const OPTIONS: OptionNames<AdmissionOptions> = { resource: true, remembered: true }

/** Methods that change nothing (RFC 9110, 9.2.1). */
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE'])

/** Turn stale tokens away at the door, before they cost anything. The guard is at the storage. */
export function admission(options: AdmissionOptions): Admission {
  checkOptions('admission()', options, OPTIONS)
  const marks = new RecentMarks(options.remembered ?? 10_000)
  const leases = new WeakMap<object, LeaseLike>()

  /** The problem, or undefined if it may come in. */
  function admit(request: object, { method, url }: RequestLine, header: string | undefined): Problem | undefined {
    const resource = options.resource({ method, url })
    if (resource === undefined) return undefined
    const found = leaseOf(header, resource)
    if ('status' in found) return found
    const access = SAFE.has(method) ? 'read' : 'write'
    try {
      marks.check(found, access)
    } catch (error) {
      return problemOf(error) ?? unfit(resource, error as Error)
    }
    leases.set(request, found)
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
      return never()
    },
    hono: async (context, next) => {
      const { method, url } = context.req
      const problem = admit(context, { method, url }, context.req.header(HEADER))
      if (problem !== undefined) return responseOf(problem)
      await next()
      return undefined
    },
    lease: (request) => {
      const found = leases.get(request)
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
class RecentMarks {
  readonly #marks = new Map<string, Marks>()
  readonly #most: number

  constructor(most: number) {
    if (!Number.isSafeInteger(most) || most < 1)
      throw new RangeError(`remembered must be a whole number, 1 or more; got ${most}`)
    this.#most = most
  }

  check(lease: LeaseLike, access: Access): void {
    const { resource, token } = resourceToken(lease, access)
    const marks = this.#marks.get(resource) ?? NO_MARKS
    checkToken(resource, token, access, marks)
    // A Map keeps the order of insertion: the first is the one not seen for longest.
    this.#marks.delete(resource)
    this.#marks.set(resource, raiseMarks(marks, token, access))
    if (this.#marks.size > this.#most) this.#marks.delete(this.#marks.keys().next().value as string)
  }
}
