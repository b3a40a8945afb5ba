/**
 * What the core does to the process it lives in: keep it alive, let it end, and never crash it. In processes of their
 * own, which run what `npm run build` emits.
 */
import { describe, expect, test } from 'vitest'
import { type Ended, runProgram } from '../program.ts'

/** Run a module that has `createLocks`, `memory` and `locks`, to its end. */
const run = (body: string): Promise<Ended> => runProgram('createLocks(memory())', body)

describe('a process', () => {
  test('that only waits for a lock stays alive until its wait is over', async () => {
    const ended = await run(`
      await locks.mutex('a').acquire()
      await locks.mutex('a').acquire({ wait: '300ms' }).catch((error) => say(error.code))`)
    expect(ended).toEqual({ code: 0, out: 'ACQUIRE_TIMEOUT', err: '' })
  })

  test('that only waits for a turn inside a lease stays alive until its wait is over', async () => {
    const ended = await run(`
      const outer = await locks.mutex('a').acquire()
      await locks.mutex('a').acquire({ within: outer })
      await locks.mutex('a').acquire({ within: outer, wait: '300ms' }).catch((error) => say(error.code))`)
    expect(ended).toEqual({ code: 0, out: 'ACQUIRE_TIMEOUT', err: '' })
  })

  test('that only waits for a call to the engine stays alive until its time is over', async () => {
    const ended = await run(`
      const frozen = Object.assign(memory(), { enter: () => new Promise(() => {}) })
      const never = createLocks(frozen, { callTimeout: '300ms' })
      await never.mutex('a').tryAcquire().catch((error) => say(error.code, error.outcome))
      await never.close()
      say('closed')`)
    expect(ended).toEqual({ code: 0, out: 'ENGINE unknown\nclosed', err: '' })
  })

  test('that only awaits a change of a record which another one has overtaken stays alive until it is made', async () => {
    const ended = await run(`
      const { rateLimit } = await import('holdfast/rate-limit')
      const { stock } = await import('holdfast/stock')
      const engine = memory()
      const { store } = engine
      let puts = 0
      const put = async (changes) => {
        // Another process has made the same change, in the moment before.
        if (puts++ % 2 === 0) await store.put(changes)
        return store.put(changes)
      }
      engine.store = { traits: store.traits, get: (keys) => store.get(keys), put }
      const overtaken = createLocks(engine)
      const { allowed } = await rateLimit(overtaken, { limit: 10, per: '1m' }).take('user')
      say('taken', allowed)
      const seats = stock(overtaken, 'concert')
      await seats.set({ A: 2 })
      say('set')
      const hold = await seats.reserve('cart', { A: 2 })
      say('reserved')
      await seats.confirm('cart')
      say('confirmed')`)
    expect(ended).toEqual({ code: 0, out: 'taken true\nset\nreserved\nconfirmed', err: '' })
  })

  test('that only awaits a draw from a rate limit which is asked again stays alive until it is answered', async () => {
    const ended = await run(`
      const { EngineError } = await import('holdfast')
      const { rateLimit } = await import('holdfast/rate-limit')
      const engine = memory()
      const { store } = engine
      const take = store.take.bind(store)
      let takes = 0
      store.take = (draws) => {
        if (takes++ > 0) return take(draws)
        return Promise.reject(new EngineError('memory', 'take: refused', { outcome: 'not-applied' }))
      }
      const { allowed } = await rateLimit(createLocks(engine), { limit: 10, per: '1m' }).take('user')
      say('taken', allowed)`)
    expect(ended).toEqual({ code: 0, out: 'taken true', err: '' })
  })

  test('that only watches who leads stays alive', async () => {
    const ended = await run(`
      const signal = AbortSignal.timeout(300)
      for await (const leader of locks.election('a').observe({ signal })) say(leader)
      say('ended')`)
    expect(ended).toMatchObject({ code: 0, out: 'undefined\nended' })
  })

  test('whose work awaits nothing but its signal stays alive until the work has ended', async () => {
    const ended = await run(`
      const untilTold = (lease) => new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
      for (const lock of [locks.mutex('a'), locks.all([locks.mutex('a'), locks.mutex('b')])])
        await lock.using({ maxHold: '300ms' }, untilTold).catch((error) => say(error.why))
      say('ended')`)
    expect(ended).toEqual({ code: 0, out: 'maxHold\nmaxHold\nended', err: '' })
  })

  test.each([
    ['once', `(await import('holdfast/once')).once(locks).run('a', untilTold)`],
    ['cache', `(await import('holdfast/cache')).cache(locks, { name: 'a', ttl: '1m' }).get('a', untilTold)`],
    ['tick', `(await import('holdfast/cron')).tick(locks, 'a', new Date(), untilTold)`],
    ['replace', `(await import('holdfast/replace')).replace(locks, 'a', {}, untilTold)`],
  ])(
    'whose work of a recipe awaits nothing but its signal stays alive until the work has ended: %s',
    async (_, call) => {
      const ended = await run(`
      const evictAll = async () => {
        for await (const { key } of locks.list())
          for (const { token } of (await locks.inspect(key)).entries) await locks.evict(key, token)
      }
      // The one who evicts keeps this process alive no more than another process would.
      const untilTold = ({ signal }) => {
        setTimeout(evictAll, 300).unref()
        return new Promise((resolve) => signal.addEventListener('abort', () => resolve(say('told'))))
      }
      await ${call}.catch(() => {})
      say('ended')`)
      expect(ended).toEqual({ code: 0, out: 'told\nended', err: '' })
    },
  )

  test('that has closed its locks ends, though work under them goes on and awaits nothing that can come', async () => {
    const ended = await run(`
      void locks.mutex('a').using(() => new Promise(() => say('works')))
      await locks.mutex('b').using(() => {})
      await locks.close()
      say('closed')`)
    expect(ended).toEqual({ code: 0, out: 'works\nclosed', err: '' })
  })

  test('that has closed its locks ends, though work of recipes goes on, and others wait for what it answers', async () => {
    const ended = await run(`
      const { once } = await import('holdfast/once')
      const { cache } = await import('holdfast/cache')
      const { replace } = await import('holdfast/replace')
      const onces = once(locks, { wait: '1h' })
      const values = cache(locks, { name: 'a', ttl: '1m' })
      const calls = [
        (work) => onces.run('a', work),
        (work) => values.get('a', work),
        (work) => replace(locks, 'a', {}, work),
      ]
      for (const call of calls) {
        await new Promise((begins) => void call(() => new Promise(() => begins(say('works')))))
        // Others of this process wait for it, or in line.
        call(() => {}).catch(() => {})
      }
      await locks.close()
      say('closed')`)
    expect(ended).toEqual({ code: 0, out: 'works\nworks\nworks\nclosed', err: '' })
  })

  test('whose server has closed ends, though a handler of idempotency() has not, and its client has gone', async () => {
    const ended = await run(`
      const { once } = await import('node:events')
      const { createServer, request } = await import('node:http')
      const { idempotency } = await import('holdfast/http')
      const keys = idempotency(locks, { scope: () => '' })
      const handle = () => {
        say('works')
        client.destroy()
      }
      const server = createServer((asked, answer) => keys.node(asked, answer, handle)).listen(0, '127.0.0.1')
      await once(server, 'listening')
      const headers = { 'idempotency-key': 'k' }
      const client = request({ port: server.address().port, method: 'POST', headers }).on('error', () => {}).end()
      await new Promise((resolve) => client.once('close', resolve))
      server.close(() => say('closed'))`)
    expect(ended).toEqual({ code: 0, out: 'works\nclosed', err: '' })
  })

  test('that waits for the time of a tick is told at once that its locks are closed', async () => {
    const ended = await run(`
      const { tick } = await import('holdfast/cron')
      const store = createLocks(memory())
      const asked = [{}, { store }].map((options) => tick(locks, 'a', Date.now() + 60_000, options, () => {}))
      await locks.ping()
      await locks.close()
      for (const { reason } of await Promise.allSettled(asked)) say(reason.code)`)
    expect(ended).toEqual({ code: 0, out: 'CLOSED\nCLOSED', err: '' })
  })

  test('that only holds ends, though it has not released', async () => {
    const ended = await run(`
      await locks.mutex('a').acquire()
      await locks.semaphore('b', 3).acquire({ wait: '1h', signal: new AbortController().signal })
      say('held')`)
    expect(ended).toEqual({ code: 0, out: 'held', err: '' })
  })

  test('that has waited, cancelled, timed out and released ends', async () => {
    const ended = await run(`
      const lease = await locks.mutex('a').acquire()
      const controller = new AbortController()
      const cancelled = locks.mutex('a').acquire({ signal: controller.signal }).catch(() => say('cancelled'))
      const late = locks.mutex('a').acquire({ wait: '50ms' }).catch(() => say('late'))
      setImmediate(() => controller.abort())
      await Promise.all([cancelled, late])
      const next = locks.mutex('a').using(() => say('next'))
      await lease.release()
      await next`)
    expect(ended).toEqual({ code: 0, out: 'cancelled\nlate\nnext', err: '' })
  })

  test('that has closed its locks ends, though calls to the engine are never answered', async () => {
    const ended = await run(`
      const engine = memory()
      const never = createLocks(Object.assign(engine, { renew: () => new Promise(() => {}), leave: () => new Promise(() => {}) }), { ttl: '2s', callTimeout: '1s' })
      const lease = await never.mutex('a').acquire()
      const busy = setInterval(() => {}, 1000)
      const lost = new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
      if (lease.held) await lost
      clearInterval(busy)
      await never.close()
      say('closed')`)
    expect(ended).toEqual({ code: 0, out: 'closed', err: '' })
  })
})

describe('a subscriber that throws', () => {
  const throwing = (name: string): string =>
    `subscribe('holdfast:${name}', () => { throw new Error('subscriber of ${name}') })`

  test('is reported by Node as an uncaught exception, and disturbs no lock', async () => {
    const ended = await run(`
      process.on('uncaughtException', (error) => say('uncaught:', error.message))
      ${['request', 'grant', 'release'].map(throwing).join('\n')}
      const result = await locks.mutex('a').using(() => 'done')
      const again = await locks.mutex('a').tryAcquire()
      setImmediate(() => say(result, again.held))`)
    expect(ended.code).toBe(0)
    const lines = ended.out.split('\n')
    expect(lines.at(-1)).toBe('done true')
    expect(lines.filter((line) => line === 'uncaught: subscriber of grant')).toHaveLength(2)
  })

  test('ends a process that does not listen for uncaught exceptions: that is what an uncaught exception does', async () => {
    const ended = await run(`
      ${throwing('grant')}
      await locks.mutex('a').acquire()
      setTimeout(() => say('still here'), 1000)`)
    expect(ended.code).toBe(1)
    expect(ended.err).toContain('subscriber of grant')
    expect(ended.out).toBe('')
  })
})

test('work in the background never makes an unhandled rejection', async () => {
  const ended = await run(`
    let calls = 0
    const engine = memory()
    const shaky = (verb) => (...args) => (calls++ % 3 === 0 ? Promise.reject(new Error('shaky')) : verb.apply(engine, args))
    const shakyLocks = createLocks(Object.assign(engine, { enter: shaky(engine.enter), renew: shaky(engine.renew), leave: shaky(engine.leave) }), { ttl: '60ms' })
    for (let round = 0; round < 30; round += 1) {
      const controller = new AbortController()
      const all = ['a', 'b', 'a'].map((key) =>
        shakyLocks.mutex(key).using({ wait: '40ms', signal: controller.signal }, () => new Promise((resolve) => setTimeout(resolve, 5))))
      if (round % 2 === 0) setTimeout(() => controller.abort(), 3)
      await Promise.allSettled(all)
    }
    await shakyLocks.close()
    say('calm')`)
  expect(ended).toEqual({ code: 0, out: 'calm', err: '' })
})
