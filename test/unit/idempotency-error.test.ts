/** Errors after a part of a body: they take its place, in what a client is told and in what is stored. */
import { PassThrough } from 'node:stream'
import express, { type Response } from 'express'
import fastify from 'fastify'
import { expect, test } from 'vitest'
import { ask, keysOf, portOf, serving } from './idempotency-world.ts'

test.each<[string, (response: Response, error: Error) => void]>([
  ['status()', (response, { message }) => void response.status(422).json({ message })],
  [
    'writeHead()',
    (response, { message }) => response.writeHead(422, { 'x-error': 'yes' }).end(JSON.stringify({ message })),
  ],
])('Express: an error of %s takes the place of the part before it, with the headers of that', async (_, tell) => {
  const app = express()
  app.use((_, response, next) => {
    response.setHeader('content-language', 'de')
    next()
  })
  app.post('/', keysOf().node, (_, response, next) => {
    response.set({ 'content-type': 'text/csv', 'content-encoding': 'x-mine', 'x-kept': 'yes' }).write('a,b\n')
    next(new Error('in the middle'))
  })
  app.use((error: Error, _: unknown, response: Response, next: (error: Error) => void) => {
    if (response.headersSent) next(error)
    else tell(response, error)
  })
  const port = await serving(app)
  for (const headers of [{ 'x-kept': 'yes', 'content-language': 'de' }, { 'idempotent-replayed': 'true' }]) {
    const answer = await ask(port)
    expect([answer.status, answer.body]).toEqual([422, '{"message":"in the middle"}'])
    expect(Object.fromEntries(answer.headers)).toMatchObject(headers)
    expect([answer.headers.get('content-type'), answer.headers.get('content-encoding')]).toEqual([null, null])
  }
})

test.each(['text/csv', 'application/json'])(
  'Fastify: the error of a stream of %s is not said to be encoded as the part before it',
  async (type) => {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    await app.register(keysOf({ headers: ['content-type', 'content-encoding'] }).fastify)
    app.post('/', (_, reply) => {
      const broken = new PassThrough()
      broken.write('a part')
      void reply.headers({ 'content-type': type, 'content-encoding': 'gzip' }).send(broken)
      setImmediate(() => broken.destroy(Object.assign(new Error('upstream'), { statusCode: 422 })))
    })
    await app.listen({ host: '127.0.0.1', port: 0 })
    const port = await portOf(app.server)
    for (let time = 1; time <= 2; time += 1) {
      const { status, body, headers } = await ask(port)
      expect([status, JSON.parse(body)]).toMatchObject([422, { message: 'upstream' }])
      expect(headers.get('content-type')).toContain('application/json')
      expect(headers.get('content-encoding')).toBe(null)
    }
  },
)
