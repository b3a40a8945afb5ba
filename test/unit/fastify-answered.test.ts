/** Requests that a hook of ours has answered: Fastify must not run their handler, whatever their client does. */
import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import { expect, test } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { admission } from '../../src/guards/http.ts'
import { limited } from '../../src/recipes/http/index.ts'
import { rateLimit } from '../../src/recipes/rate-limit/index.ts'
import { ask, goWhen, portOf } from './idempotency-world.ts'
import { gate, locksOn } from './once-world.ts'

interface Door {
  install(app: FastifyInstance): unknown
  /** What it answers to all requests but the first. */
  readonly status: number
}

const DOORS: Readonly<Record<string, Door>> = {
  'admission()': {
    install: (app) => app.addHook('preHandler', admission({ resource: ({ url }) => url }).fastify),
    status: 428,
  },
  'limited()': {
    install: (app) => {
      const api = rateLimit(locksOn(memory()), { name: 'api', limit: 1, per: '1h' })
      return app.addHook('preHandler', limited<FastifyRequest>(api, { key: () => 'ann' }).fastify)
    },
    status: 429,
  },
}

test.each(Object.keys(DOORS))(
  '%s: what was answered is not handled, also where its client goes while a hook of the application waits',
  async (name) => {
    const { install, status } = DOORS[name] as Door
    const [begun, gone, ended] = [gate(), gate(), gate()]
    let [handled, isLeaving] = [0, false]
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    await install(app)
    app.addHook('onSend', async (_, reply) => {
      if (!isLeaving) return
      reply.raw.once('close', () => gone.open())
      begun.open()
      await ended.opened
    })
    app.post('/', async () => `paid ${++handled}`)
    await app.listen({ host: '127.0.0.1', port: 0 })
    const port = await portOf(app.server)

    await ask(port)
    const before = handled
    isLeaving = true
    await goWhen(begun.opened, port)
    await gone.opened
    isLeaving = false
    expect((await ask(port)).status).toBe(status)
    expect(handled).toBe(before)
    ended.open()
  },
)
