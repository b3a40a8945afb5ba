/**
 * A server with an Idempotency-Key, of idempotency.processes.test.ts: `idempotency.child.mjs FRAMEWORK URL TTL`. Each
 * charge asks the test whether to go on, and this process may be killed there.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { serve } from '@hono/node-server'
import express from 'express'
import fastify from 'fastify'
import { Hono } from 'hono'
import { connect } from '../../dist/src/index.js'
import { idempotency } from '../../dist/src/recipes/http/index.js'

const [framework, url, ttl] = process.argv.slice(2)
const locks = await connect(url, { ttl: Number(ttl) })
const keys = idempotency(locks, { scope: () => 'shop', wait: '30s' })

async function charge({ id, number }) {
  process.send({ charging: { id, number } })
  await once(process, 'message')
  return { charge: id, number }
}

async function listening(server) {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server.address().port
}

const frameworks = {
  async express() {
    const app = express()
    app.use(express.json())
    app.post('/payments', keys.node, async (request, response) => {
      response.status(201).json(await charge(keys.attempt(request)))
    })
    return listening(createServer(app))
  },

  async fastify() {
    const app = fastify()
    await app.register(keys.fastify)
    app.post('/payments', async (request, reply) => reply.code(201).send(await charge(keys.attempt(request))))
    await app.listen({ host: '127.0.0.1', port: 0 })
    return app.server.address().port
  },

  async hono() {
    const app = new Hono()
    app.use(keys.hono)
    app.post('/payments', async (context) => context.json(await charge(keys.attempt(context)), 201))
    const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 })
    await once(server, 'listening')
    return server.address().port
  },
}

const port = await frameworks[framework]()
process.on('disconnect', () => process.exit())
process.send({ port })
