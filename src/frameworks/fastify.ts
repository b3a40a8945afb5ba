/**
 * `holdfast/fastify`: locks as a plugin of Fastify.
 *
 *     await app.register(holdfast, { url: 'redis://cache' })
 *     app.post('/orders/:id', async ({ params }) => app.locks.mutex(`order:${params.id}`).using({ wait: '5s' }, ship))
 *
 * It decorates the application that it is registered with, and those inside of that one; registered inside of a plugin
 * of yours, that one only. When the application closes, the locks are drained and closed, after the last request has
 * been answered.
 */
import type { FastifyInstance } from 'fastify'
import { checkOptions, type OptionNames } from '../core/options.ts'
import type { Locks } from '../locks.ts'
import { httpProblem } from '../recipes/http/problems.ts'
import { OPEN_OPTIONS, type OpenOptions, openLocks } from './open.ts'

export type { OpenOptions } from './open.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** The locks of `holdfast/fastify`. */
    locks: Locks
  }
}

/** Options of the plugin: where the locks come from, those of `connect()`, and these. */
export interface HoldfastPluginOptions extends OpenOptions {
  /** What the locks are called at the application: `locks` unless given. A second engine needs another name. */
  readonly decorator?: string
  /**
   * Answer errors of Holdfast that a handler throws as `httpProblem()` says: 409, 422, 503. False unless given: then
   * they are errors like any other. It sets the error handler of the application.
   */
  readonly problems?: boolean
}

const PLUGIN_OPTIONS: OptionNames<HoldfastPluginOptions> = { ...OPEN_OPTIONS, decorator: true, problems: true }
/** What Fastify itself takes in the same place. */
const OF_FASTIFY = ['prefix', 'logLevel', 'logSerializers'] as const

async function decorate(app: FastifyInstance, given: HoldfastPluginOptions): Promise<void> {
  const options = Object.fromEntries(Object.entries(given).filter(([name]) => !OF_FASTIFY.includes(name as 'prefix')))
  checkOptions('holdfast/fastify', options, PLUGIN_OPTIONS)
  const { decorator = 'locks', problems = false, ...open } = options as HoldfastPluginOptions
  if (app.hasDecorator(decorator))
    throw new TypeError(`this application has '${decorator}' already: give the plugin another { decorator }`)
  const { locks, end } = await openLocks(open, (message) => app.log.warn(message))
  app.decorate(decorator, locks)
  app.addHook('onClose', end)
  if (problems) answerProblems(app)
}

function answerProblems(app: FastifyInstance): void {
  app.setErrorHandler((error, _request, reply) => {
    const problem = httpProblem(error)
    // The handler of the application around this one, or that of Fastify, answers it.
    if (problem === undefined) throw error
    return reply.code(problem.status).headers(problem.headers).send(JSON.stringify(problem.body))
  })
}

/** A plugin of Fastify 5. */
export type HoldfastPlugin = (app: FastifyInstance, options: HoldfastPluginOptions) => Promise<void>

/** Locks for an application of Fastify: `app.register(holdfast, { url })`. */
export const holdfast: HoldfastPlugin = Object.assign(decorate, {
  // As `fastify-plugin` does: the locks are for the application itself, and others can depend on the name.
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'holdfast',
  [Symbol.for('plugin-meta')]: { name: 'holdfast', fastify: '5.x' },
})

export default holdfast
