/** `holdfast/nest` in applications of Nest, in memory: the module, and what its decorators make of methods. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Logger, Scope } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { of } from 'rxjs'
import { describe, expect, test, vi } from 'vitest'
import { AcquireTimeoutError, DeadlockError, LeaseLostError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import {
  currentLease,
  HoldfastHealth,
  HoldfastModule,
  InjectLocks,
  Locked,
  locksToken,
} from '../../src/frameworks/nest/index.ts'
import type { Locks } from '../../src/locks.ts'
import { closedAtEnd, contextOf, decorate, moduleOf, NestHosts } from './nest-world.ts'

const LIMIT = { timeout: 20_000 }
const hosts = new NestHosts()

interface Order {
  readonly id: string
}

describe('the module', () => {
  test('opens locks, hands them out, and drains and closes them when the application ends', async () => {
    class Service {
      readonly locks!: Locks
    }
    InjectLocks()(Service.prototype, 'locks')
    const app = await contextOf({
      imports: [HoldfastModule.forRoot({ url: 'memory:', holder: 'shop-1', grace: '20s' })],
      providers: [Service],
    })
    const { locks } = app.get(Service)
    expect(locks.holder).toBe('shop-1')
    expect(app.get(locksToken())).toBe(locks)
    const lease = await locks.mutex('a').acquire()
    const closing = app.close()
    await vi.waitFor(() => expect(locks.draining.aborted).toBe(true), LIMIT)
    expect(lease.held, 'a holder may end').toBe(true)
    await lease.release()
    await closing
    await expect(locks.mutex('a').acquire()).rejects.toThrow('the locks were closed')
  })

  test('takes its options from a factory, and gives each name its own locks', async () => {
    const config = { provide: 'CONFIG', useValue: { url: 'memory:' } }
    const configModule = moduleOf({ providers: [config], exports: ['CONFIG'] })
    const useFactory = async ({ url }: { url: string }) => ({ url, holder: 'by factory' })
    const app = closedAtEnd(
      await contextOf({
        imports: [
          HoldfastModule.forRootAsync({ imports: [configModule], inject: ['CONFIG'], useFactory }),
          HoldfastModule.forRootAsync({ name: 'reports', useFactory: () => ({ url: 'memory:', holder: 'other' }) }),
        ],
      }),
    )
    expect(app.get<Locks>(locksToken()).holder).toBe('by factory')
    expect(app.get<Locks>(locksToken('reports')).holder).toBe('other')
  })

  test('leaves locks that it was given to their giver', async () => {
    const locks = hosts.locks()
    const app = await contextOf({ imports: [HoldfastModule.forRoot({ locks })] })
    await app.close()
    expect(await locks.ping()).toBeGreaterThanOrEqual(0)
  })

  test('is seen by the modules that import it, or by all if it is global', async () => {
    class Service {
      async work(): Promise<bigint | null> {
        return currentLease().token
      }
    }
    decorate(Service, 'work', Locked('a'))
    const inner = moduleOf({ providers: [Service] })
    const imports = (isGlobal: boolean) => [HoldfastModule.forRoot({ url: 'memory:', isGlobal }), inner]
    await expect(contextOf({ imports: imports(false) })).rejects.toThrow(/can't resolve dependencies of the Service/)
    const app = closedAtEnd(await contextOf({ imports: imports(true) }))
    expect(await app.get(Service, { strict: false }).work()).toBe(1n)
  })

  test('refuses options that it does not know, and two places', async () => {
    const start = (options: object) => contextOf({ imports: [HoldfastModule.forRoot(options)] })
    await expect(start({ uri: 'memory:' })).rejects.toThrow(
      "unknown option 'uri' in HoldfastModule; did you mean 'url'?",
    )
    await expect(start({ url: 'memory:', engine: memory() })).rejects.toThrow('give one of url, engine and locks')
    await expect(start({ locks: hosts.locks(), ttl: '5s' })).rejects.toThrow('have their options already; got ttl')
  })

  test('does not start on an engine that can never answer, and says why', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-nest-'))
    const file = join(folder, 'locks.db')
    writeFileSync(file, 'no database, but a text that is long enough to be taken for one'.repeat(100))
    const start = contextOf({ imports: [HoldfastModule.forRoot({ url: `sqlite:${file}` })] })
    await expect(start).rejects.toMatchObject({ code: 'ENGINE', transient: false })
    rmSync(folder, { recursive: true })
  })

  test('starts while the server is away, and tells the log', async () => {
    const said: string[] = []
    const logger = { log: () => {}, error: () => {}, warn: (text: string, about: string) => said.push(about, text) }
    // Nothing listens on that port.
    const imports = [HoldfastModule.forRoot({ url: 'redis://127.0.0.1:1', callTimeout: '500ms' })]
    closedAtEnd(await NestFactory.createApplicationContext(moduleOf({ imports }), { logger, abortOnError: false }))
    Logger.overrideLogger(false)
    expect(said).toEqual([
      'HoldfastModule',
      expect.stringMatching(/^the engine of the locks does not answer yet: redis: /),
    ])
  })

  test('tells whether the engine answers', async () => {
    const app = await hosts.application()
    const health = app.get(HoldfastHealth)
    expect(await health.ping()).toBeGreaterThanOrEqual(0)
    expect(await health.check('locks')).toEqual({ locks: { status: 'up', ms: expect.any(Number) } })
    await app.get<Locks>(locksToken()).close()
    await expect(health.check()).rejects.toMatchObject({
      isHealthCheckError: true,
      causes: { holdfast: { status: 'down', message: 'the locks are being drained' } },
    })
  })
})

describe('@Locked', () => {
  test('locks calls by route and by hand alike, under a key made of the arguments', async () => {
    const seen: string[] = []
    class Orders {
      async ship(order: Order): Promise<string> {
        seen.push(`${currentLease().key} ${currentLease().held}`)
        return `shipped ${order.id} by ${this.constructor.name}`
      }
    }
    decorate(Orders, 'ship', Locked('order:{0.id}', { wait: 0 }))
    const orders = (await hosts.application(Orders)).get(Orders)
    expect(await orders.ship({ id: '7' })).toBe('shipped 7 by Orders')
    expect(seen).toEqual(['order:7 true'])
    const held = await hosts.locks().mutex('order:7').acquire()
    await expect(orders.ship({ id: '7' })).rejects.toThrow(AcquireTimeoutError)
    expect(await orders.ship({ id: '8' })).toContain('shipped 8')
    await held.release()
    expect(await orders.ship({ id: '7' })).toContain('shipped 7')
  })

  test('lets as many in as limit says, and has functions for keys', async () => {
    let open = (): void => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    let inside = 0
    class Reports {
      async make(_user: string, _kind: number): Promise<void> {
        inside += 1
        await gate
      }
    }
    decorate(
      Reports,
      'make',
      Locked((user: string, kind: number) => `${user}/${kind}`, { limit: 2, wait: 0 }),
    )
    const reports = (await hosts.application(Reports)).get(Reports)
    const running = [reports.make('ann', 1), reports.make('ann', 1)]
    await vi.waitFor(() => expect(inside).toBe(2), LIMIT)
    await expect(reports.make('ann', 1)).rejects.toThrow(AcquireTimeoutError)
    const other = reports.make('ann', 2)
    open()
    await Promise.all([...running, other])
  })

  test('rejects with LeaseLostError when the lease is lost inside, and the method is told', async () => {
    class Orders {
      async ship(): Promise<string> {
        const { key, token, signal } = currentLease()
        await hosts.locks().evict(key, token as bigint)
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        return 'shipped all the same'
      }
    }
    decorate(Orders, 'ship', Locked('order', { ttl: '300ms' }))
    const orders = (await hosts.application(Orders)).get(Orders)
    await expect(orders.ship()).rejects.toThrow(LeaseLostError)
  })

  test('refuses to wait for itself, and nests where that is meant', async () => {
    class Orders {
      async outer(id: string): Promise<string> {
        return this.inner(id)
      }
      async inner(id: string): Promise<string> {
        return `${id} ${currentLease().held}`
      }
      async outerToo(id: string): Promise<string> {
        return this.innerToo(id)
      }
      async innerToo(id: string): Promise<string> {
        return id
      }
    }
    for (const name of ['outer', 'inner']) decorate(Orders, name, Locked('{0}'))
    for (const name of ['outerToo', 'innerToo']) decorate(Orders, name, Locked('{0}', { reentrant: true }))
    const orders = (await hosts.application(Orders)).get(Orders)
    await expect(orders.outer('a')).rejects.toThrow(DeadlockError)
    expect(await orders.outerToo('a')).toBe('a')
  })

  test('uses the locks that it is given, also in a class that Nest has not made', async () => {
    class Plain {
      readonly locks = hosts.locks()
      async work(): Promise<string> {
        return currentLease().key
      }
      async lost(): Promise<void> {}
    }
    decorate(Plain, 'work', Locked<Plain>('a', { locks: (service) => service.locks }))
    decorate(Plain, 'lost', Locked('a'))
    expect(await new Plain().work()).toBe('a')
    await expect(new Plain().lost()).rejects.toThrow('@Locked() has no locks: Plain was not made by Nest')
    expect(() => currentLease()).toThrow('currentLease() is for what runs inside of a @Locked() method')
  })

  test('is found by classes of every scope, and by those that inherit', async () => {
    class Base {
      async work(): Promise<string> {
        return this.constructor.name
      }
    }
    decorate(Base, 'work', Locked('a'))
    class Derived extends Base {
      async more(): Promise<string> {
        return currentLease().key
      }
    }
    decorate(Derived, 'more', Locked('b'))
    Reflect.defineMetadata('scope:options', { scope: Scope.TRANSIENT }, Derived)
    const app = await hosts.application(Base, Derived)
    const derived = await app.resolve(Derived)
    expect([await derived.work(), await derived.more(), await app.get(Base).work()]).toEqual(['Derived', 'b', 'Base'])
  })

  test.each([
    ['{0.id}', [{}], '{0.id} in the key'],
    ['{0.id}', [undefined], 'got undefined'],
    ['{0.id}', [{ id: '' }], "got ''"],
    ['{0}', [{}], 'got an object'],
    ['{0}', [Number.NaN], 'got NaN'],
    ['{1}', ['a'], 'got undefined'],
  ])('refuses the key %s of %j, which would be one key for all', async (key, args, message) => {
    class Orders {
      async ship(..._args: unknown[]): Promise<void> {}
    }
    decorate(Orders, 'ship', Locked(key, { locks: hosts.locks() }))
    await expect(new Orders().ship(...args)).rejects.toThrow(message)
  })

  test('refuses what can never work, where it is written', () => {
    expect(() => Locked('{id}')).toThrow("'{id}' in '{id}' must be the number of an argument")
    expect(() => Locked('')).toThrow('@Locked() takes its key as a string')
    expect(() => Locked('a', { wiat: '5s' } as object)).toThrow("unknown option 'wiat' in @Locked()")
    expect(() => Locked('a', { wait: 'soon' as '5s' })).toThrow(/wait/)
    expect(() => Locked('a', { limit: 2, reentrant: true })).toThrow('limit or reentrant')
    class Orders {
      field = 1
    }
    const notMethod = Locked('a') as (target: object, key: string, descriptor?: object) => void
    expect(() => notMethod(Orders.prototype, 'field')).toThrow("@Locked() belongs to a method; 'field' is none")
    const standard = Locked('a') as unknown as (value: unknown, context: object) => void
    expect(() => standard(() => {}, { kind: 'method', name: 'ship' })).toThrow('"experimentalDecorators": true')
  })

  test.each([
    ['an Observable', () => of(1)],
    ['a generator', async function* () {}],
  ])('refuses %s, which would run when the lock is free again', async (what, make) => {
    class Orders {
      list(): unknown {
        return make()
      }
    }
    decorate(Orders, 'list', Locked('a', { locks: hosts.locks() }))
    await expect(new Orders().list()).rejects.toThrow(`Orders.list returns ${what}`)
  })
})
