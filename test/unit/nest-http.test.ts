/** Routes of Nest, by real requests on Express and on Fastify: what clients are told, and the probe of terminus. */
import { Controller, Get, type INestApplication, Param, UseFilters } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ExpressAdapter } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import { HealthCheckService, TerminusModule } from '@nestjs/terminus'
import { afterEach, describe, expect, test } from 'vitest'
import {
  AcquireTimeoutError,
  ClosedError,
  DeadlockError,
  EngineError,
  InProgressError,
  KeyReusedError,
  LeaseLostError,
} from '../../src/core/errors.ts'
import { HoldfastFilter, HoldfastHealth, HoldfastModule, Locked, locksToken } from '../../src/frameworks/nest/index.ts'
import type { Locks } from '../../src/locks.ts'
import { decorate, moduleOf } from './nest-world.ts'

const away = new EngineError('redis', 'it is away', { outcome: 'not-applied' })
const ERRORS: Readonly<Record<string, Error>> = {
  busy: new AcquireTimeoutError('order:7', 0, 1, []),
  away: new AcquireTimeoutError('order:7', 0, 1, [], { cause: away }),
  broken: new EngineError('redis', 'WRONGPASS', { outcome: 'not-applied', transient: false }),
  closed: new ClosedError('redis', 'the locks are being drained', 'not-applied'),
  progress: new InProgressError('key', 2_500, undefined),
  reused: new KeyReusedError('key'),
  lost: new LeaseLostError('order:7', 1n, 'expired'),
  deadlock: new DeadlockError('order:7', 'would wait for itself'),
}

/** What was logged as an error. */
const said: string[] = []

let app: INestApplication | undefined
afterEach(() => app?.close())

type Order = (locked: unknown, route: unknown) => readonly unknown[]
const ABOVE: Order = (locked, route) => [locked, route]
const BELOW: Order = (locked, route) => [route, locked]

async function start(adapter: ExpressAdapter | FastifyAdapter, order: Order): Promise<string> {
  class Api {
    async handle(what: string): Promise<string> {
      const error = ERRORS[what]
      if (error !== undefined) throw error
      return `handled ${what}`
    }
  }
  Controller()(Api)
  UseFilters(HoldfastFilter)(Api)
  Param('what')(Api.prototype, 'handle', 0)
  decorate(Api, 'handle', ...order(Locked('route:{0}'), Get(':what')))
  const imports = [HoldfastModule.forRoot({ url: 'memory:' })]
  const logger = { log: () => {}, warn: () => {}, error: (message: string) => said.push(message) }
  app = await NestFactory.create(moduleOf({ imports, controllers: [Api] }), adapter, { logger })
  await app.listen(0, '127.0.0.1')
  return await app.getUrl()
}

describe.each([
  ['Express', 'above', () => new ExpressAdapter(), ABOVE],
  ['Express', 'below', () => new ExpressAdapter(), BELOW],
  ['Fastify', 'above', () => new FastifyAdapter(), ABOVE],
  ['Fastify', 'below', () => new FastifyAdapter(), BELOW],
] as const)('%s, @Locked %s @Get', (_, _where, adapter, order) => {
  test('a route is locked, and what it throws is told', async () => {
    const url = await start(adapter(), order)
    const ask = async (what: string): Promise<readonly [number, string | null, unknown]> => {
      const response = await fetch(`${url}/${what}`)
      const body = response.status === 200 ? await response.text() : ((await response.json()) as { type?: string }).type
      return [response.status, response.headers.get('retry-after'), body]
    }
    expect(await ask('7')).toEqual([200, null, 'handled 7'])
    expect(await ask('busy')).toEqual([409, '1', 'urn:holdfast:busy'])
    expect(await ask('away')).toEqual([503, '1', 'urn:holdfast:unavailable'])
    expect(await ask('closed'), 'a deployment').toEqual([503, '1', 'urn:holdfast:unavailable'])
    expect(await ask('progress')).toEqual([409, '3', 'urn:holdfast:in-progress'])
    expect(await ask('reused')).toEqual([422, null, 'urn:holdfast:key-reused'])
    expect(await ask('lost')).toEqual([503, '1', 'urn:holdfast:lost'])
    expect(await ask('deadlock')).toEqual([500, null, undefined])
    said.length = 0
    expect(await ask('broken'), 'asking again does not help').toEqual([500, null, undefined])
    expect(said).toEqual(['redis: WRONGPASS'])
    const problem = await fetch(`${url}/busy`)
    expect(problem.headers.get('content-type')).toContain('application/problem+json')
    expect(await problem.text(), 'strangers learn no keys').not.toContain('order:7')
    const held = await (app as INestApplication).get<Locks>(locksToken()).mutex('route:8').acquire()
    const waiting = ask('8')
    await held.release()
    expect(await waiting).toEqual([200, null, 'handled 8'])
  })
})

test('terminus takes the probe for an indicator, up and down, and so does a route without it', async () => {
  class Probe {
    readonly health: HealthCheckService
    readonly locks: HoldfastHealth
    constructor(health: HealthCheckService, locks: HoldfastHealth) {
      this.health = health
      this.locks = locks
    }
    ready(): Promise<unknown> {
      return this.health.check([() => this.locks.check('locks')])
    }
    plain(): Promise<unknown> {
      return this.locks.check('locks')
    }
  }
  Controller()(Probe)
  Reflect.defineMetadata('design:paramtypes', [HealthCheckService, HoldfastHealth], Probe)
  decorate(Probe, 'ready', Get('ready'))
  decorate(Probe, 'plain', Get('plain'))
  const imports = [TerminusModule.forRoot({ logger: false }), HoldfastModule.forRoot({ url: 'memory:' })]
  app = await NestFactory.create(moduleOf({ imports, controllers: [Probe] }), { logger: false })
  await app.listen(0, '127.0.0.1')
  const url = `${await app.getUrl()}/ready`
  const plain = `${await app.getUrl()}/plain`
  expect(await (await fetch(plain)).json()).toMatchObject({ locks: { status: 'up' } })
  const up = await fetch(url)
  expect([up.status, await up.json()]).toMatchObject([200, { status: 'ok', info: { locks: { status: 'up' } } }])
  await app.get<Locks>(locksToken()).close()
  const down = await fetch(url)
  expect([down.status, await down.json()]).toMatchObject([
    503,
    { status: 'error', error: { locks: { status: 'down' } } },
  ])
  expect((await fetch(plain)).status, 'without terminus, too').toBe(503)
})
