/**
 * The shop of web-scenes.ts in Fastify, Express or Hono: `web.child.mjs JOURNAL FRAMEWORK MODULES`, with HOLDFAST_URL.
 * It listens on a free port and tells which. Long work goes on until the file `JOURNAL.open` is there.
 */
import { appendFileSync, existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const [, , journal, framework, modules] = process.argv
const { connect } = await import(`${modules}/index.js`)
const { httpProblem, idempotency, limited } = await import(`${modules}/recipes/http/index.js`)
const { rateLimit } = await import(`${modules}/recipes/rate-limit/index.js`)
const { admission } = await import(`${modules}/guards/http.js`)

const OPTIONS = { ttl: '2s' }
const note = (what, about) => appendFileSync(journal, `${JSON.stringify({ what, pid: process.pid, ...about })}\n`)

async function untilOpen() {
  while (!existsSync(`${journal}.open`)) await sleep(5)
}

async function ship(id, work, { token, signal }) {
  note('begin', { id, token: String(token) })
  if (work === 'long') await untilOpen()
  if (work === 'until lost') {
    while (!signal.aborted) await sleep(5)
    note('aborted', { id })
  }
  note('end', { id, token: String(token) })
  return `shipped ${id}`
}

async function charge({ key, cents }, work, { id, number }) {
  note('charge', { key, id, number })
  if (work === 'long') await untilOpen()
  return { charged: cents, attempt: id }
}

/** What all of them use. */
function shopOf(locks) {
  const keys = idempotency(locks, { scope: () => 'shop', wait: '20s' })
  const api = limited(rateLimit(locks, { limit: 3, per: '1h' }), { key: () => 'all' })
  const door = admission({ resource: ({ url }) => /accounts\/\d+/.exec(url)?.[0] })
  const order = (id, work) =>
    locks
      .mutex(`order:${id}`)
      .using({ wait: work === 'try' ? 0 : '20s' }, (lease) =>
        work === 'try' ? `${id} was free` : ship(id, work, lease),
      )
  return { keys, api, door, order }
}

const FRAMEWORKS = {
  async fastify() {
    const { default: fastify } = await import('fastify')
    const { default: holdfast } = await import(`${modules}/frameworks/fastify.js`)
    const app = fastify()
    await app.register(holdfast, { ...OPTIONS, grace: '10s', problems: true })
    const { keys, api, door, order } = shopOf(app.locks)
    app.post('/orders/:id/:work', async ({ params }, reply) =>
      reply.code(201).send(await order(params.id, params.work)),
    )
    app.post('/tries/:id', async ({ params }, reply) => reply.code(201).send(await order(params.id, 'try')))
    app.register(async (payments) => {
      await payments.register(keys.fastify)
      payments.post('/payments', async (request, reply) =>
        reply.code(201).send(await charge(request.body, request.headers['x-work'], keys.attempt(request))),
      )
    })
    app.post('/limited', { onRequest: api.fastify }, async () => 'allowed')
    app.put('/accounts/:id', { preHandler: door.fastify }, async (request) => String(door.lease(request).token))
    process.once('SIGTERM', () => void app.close())
    return await app.listen({ host: '127.0.0.1', port: 0 })
  },

  async express() {
    const { default: express } = await import('express')
    const locks = await connect(undefined, OPTIONS)
    const { keys, api, door, order } = shopOf(locks)
    const app = express()
    app.use(express.json())
    app.post('/orders/:id/:work', async ({ params }, response) => {
      response.status(201).send(await order(params.id, params.work))
    })
    app.post('/tries/:id', async ({ params }, response) => {
      response.status(201).send(await order(params.id, 'try'))
    })
    app.post('/payments', keys.node, async (request, response) => {
      response.status(201).json(await charge(request.body, request.headers['x-work'], keys.attempt(request)))
    })
    app.post('/limited', api.node, (_, response) => response.send('allowed'))
    app.put('/accounts/:id', door.node, (request, response) => response.send(String(door.lease(request).token)))
    app.use((error, _request, response, next) => {
      const problem = httpProblem(error)
      if (problem === undefined) return next(error)
      return response.status(problem.status).set(problem.headers).send(JSON.stringify(problem.body))
    })
    const server = app.listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    process.once('SIGTERM', () => server.close(() => locks.drain({ grace: '10s' })))
    return `http://127.0.0.1:${server.address().port}`
  },

  async hono() {
    const { Hono } = await import('hono')
    const { serve } = await import('@hono/node-server')
    const locks = await connect(undefined, OPTIONS)
    const { keys, api, door, order } = shopOf(locks)
    const app = new Hono()
    app.post('/orders/:id/:work', async (c) => c.text(await order(c.req.param('id'), c.req.param('work')), 201))
    app.post('/tries/:id', async (c) => c.text(await order(c.req.param('id'), 'try'), 201))
    app.post('/payments', keys.hono, async (c) =>
      c.json(await charge(await c.req.json(), c.req.header('x-work'), keys.attempt(c)), 201),
    )
    app.post('/limited', api.hono, (c) => c.text('allowed'))
    app.put('/accounts/:id', door.hono, (c) => c.text(String(door.lease(c).token)))
    app.onError((error, c) => {
      const problem = httpProblem(error)
      if (problem === undefined) throw error
      return c.body(JSON.stringify(problem.body), problem.status, problem.headers)
    })
    const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 })
    await new Promise((resolve) => server.once('listening', resolve))
    process.once('SIGTERM', () => server.close(() => locks.drain({ grace: '10s' })))
    return `http://127.0.0.1:${server.address().port}`
  },
}

const url = await FRAMEWORKS[framework]()
process.send({ url })
process.channel.unref()
