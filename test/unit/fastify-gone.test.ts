/** Handlers of Fastify that answer nothing to a client that has gone: then Fastify sends no reply, and we do. */
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { expect, test, vi } from 'vitest'
import { ask, goWhen, keysOf, portOf } from './idempotency-world.ts'
import { gate } from './once-world.ts'

async function start(handler: (request: FastifyRequest, reply: FastifyReply) => unknown): Promise<number> {
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  await app.register(keysOf().fastify)
  app.post('/', handler as () => Promise<unknown>)
  await app.listen({ host: '127.0.0.1', port: 0 })
  return portOf(app.server)
}

const replay = async (port: number): Promise<readonly unknown[]> => {
  const { status, body, headers } = await ask(port)
  return [status, body, headers.get('idempotent-replayed')]
}

test('what it answers is no promise, but has a `then`: that is stored, and asked for once', async () => {
  const [begun, gone] = [gate(), gate()]
  let asked = 0
  // As builders of queries do: each `then` sends the query.
  const send = (told: () => void): Promise<void> => {
    asked += 1
    return gone.opened.then(told)
  }
  // biome-ignore lint/suspicious/noThenProperty: it is one of those.
  const query = { then: send }
  const port = await start((request) => {
    request.socket.once('close', () => gone.open())
    begun.open()
    return query
  })
  await goWhen(begun.opened, port)
  await expect.poll(() => replay(port)).toEqual([200, '', 'true'])
  expect(asked).toBe(1)
})

test('a header that cannot be sent fails its request, and nothing else', async () => {
  const [begun, gone] = [gate(), gate()]
  const warned = vi.spyOn(process, 'emitWarning').mockReturnValue()
  let handled = 0
  const port = await start(async (request, reply) => {
    handled += 1
    if (handled > 1) return 'paid'
    reply.header('x-note', '\u2713')
    request.socket.once('close', () => gone.open())
    begun.open()
    return gone.opened
  })
  await goWhen(begun.opened, port)
  await gone.opened
  await expect.poll(() => replay(port)).toEqual([200, 'paid', null])
  expect(handled).toBe(2)
  warned.mockRestore()
})
