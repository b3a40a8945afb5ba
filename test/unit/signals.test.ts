/**
 * SIGTERM and SIGINT, for locks that heed them: in processes of their own, which run what `npm run build` emits, and
 * end by real signals.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { pathToFileURL } from 'node:url'
import { expect, test } from 'vitest'

const built = (path: string): string => JSON.stringify(pathToFileURL(`dist/src/${path}`).href)

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly lines: readonly string[]
}

/** A program with `connect`, `createLocks` and `memory`, and `say`, whose every line is heard as it is said. */
class Program implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly #lines: string[] = []
  readonly ended: Promise<Ended>

  constructor(body: string) {
    const program = `
      import { connect, createLocks } from ${built('index.js')}
      import { memory } from ${built('engines/memory/index.js')}
      const say = (line) => process.stdout.write(line + '\\n')
      const untilTold = ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve))
      // Keeps the process alive, as a server does.
      const server = setInterval(() => {}, 1000)
      ${body}`
    this.#child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 60_000,
      killSignal: 'SIGKILL',
    })
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on('data', (chunk) => this.#lines.push(...String(chunk).trim().split('\n')))
    this.ended = once(this.#child, 'close').then(([code, signal]) => ({ code, signal, lines: this.#lines }))
  }

  async says(line: string): Promise<void> {
    while (!this.#lines.includes(line)) await once(this.#child.stdout as NonNullable<ChildProcess['stdout']>, 'data')
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.ended
  }
}

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  test(`${signal}: waiters are refused, holders may end, everything is given back, and the signal ends the process`, async () => {
    await using program = new Program(`
      const engine = memory()
      let isTidy = false
      const leave = engine.leave.bind(engine)
      engine.leave = async (places) => {
        const left = await leave(places)
        // The waiter leaves its line as well, in a moment of its own.
        if (isTidy) say('given back: ' + left)
        return left
      }
      const locks = createLocks(engine, { signals: { grace: '30s' } })
      locks.mutex('a').using(async () => {
        say('holding')
        await untilTold({ signal: locks.draining })
        // The same Ctrl-C, passed on by npm, changes nothing.
        process.kill(process.pid, '${signal}')
        await new Promise((resolve) => setTimeout(resolve, 50))
        isTidy = true
        say('tidied up')
      })
      locks.mutex('a').acquire().catch((error) => say('waiter: ' + error.message))`)
    await program.says('holding')
    program.kill(signal)
    expect(await program.ended).toEqual({
      code: null,
      signal,
      lines: [
        'holding',
        'waiter: memory: the locks are being drained: holders are to end, and nothing new is granted',
        'tidied up',
        'given back: true',
      ],
    })
  })
}

test('a holder that does not end is told when the grace is over, and the process ends all the same', async () => {
  await using program = new Program(`
    const locks = await connect('memory:', { signals: { grace: '200ms' } })
    locks.mutex('a').using(async (lease) => {
      say('holding')
      await untilTold(lease)
      say('told: ' + lease.signal.reason.why)
      await new Promise(() => {})
    })`)
  await program.says('holding')
  program.kill('SIGTERM')
  expect(await program.ended).toEqual({ code: null, signal: 'SIGTERM', lines: ['holding', 'told: closed'] })
})

test('a holder that is told when the grace is over tidies up before the signal ends the process', async () => {
  await using program = new Program(`
    const locks = await connect('memory:', { signals: { grace: '200ms' } })
    locks.mutex('a').using(async (lease) => {
      say('holding')
      await untilTold(lease)
      await new Promise((resolve) => setTimeout(resolve, 10))
      say('tidied up')
    }).catch((error) => say(error.code))`)
  await program.says('holding')
  program.kill('SIGTERM')
  const lines = ['holding', 'tidied up', 'LEASE_LOST']
  expect(await program.ended).toEqual({ code: null, signal: 'SIGTERM', lines })
})

test('a second signal ends the process at once, and what was not given back is named', async () => {
  await using program = new Program(`
    const locks = createLocks(memory(), { signals: { grace: '10m' } })
    for (const key of ['a', 'b']) await locks.mutex(key).acquire()
    locks.mutex('a').acquire().catch(() => {})
    // A user who presses Ctrl-C again and again.
    locks.draining.addEventListener('abort', () => setInterval(() => process.kill(process.pid, 'SIGINT'), 50))
    say('holding')`)
  await program.says('holding')
  program.kill('SIGTERM')
  expect(await program.ended).toEqual({
    code: null,
    signal: 'SIGINT',
    lines: [
      'holding',
      'holdfast: ended by a second SIGINT; not given back, so that others wait until the ttl is over: "a", "b"',
    ],
  })
})

test('where the program listens as well, when to end is up to it', async () => {
  await using program = new Program(`
    const locks = createLocks(memory(), { signals: true })
    process.on('SIGTERM', async () => {
      say('program told')
      await locks.drain()
      say('drained')
      setTimeout(() => process.exit(7), 100)
    })
    await locks.mutex('a').acquire().then((lease) => lease.release())
    say('ready')`)
  await program.says('ready')
  program.kill('SIGTERM')
  expect(await program.ended).toEqual({ code: 7, signal: null, lines: ['ready', 'program told', 'drained'] })
})

test('all locks that heed signals are drained before the signal ends the process', async () => {
  await using program = new Program(`
    for (const name of ['one', 'two']) {
      const locks = createLocks(memory(), { signals: true })
      locks.mutex(name).using(async () => {
        await untilTold({ signal: locks.draining })
        await new Promise((resolve) => setTimeout(resolve, name === 'one' ? 10 : 200))
        say(name)
      })
    }
    setImmediate(() => say('ready'))`)
  await program.says('ready')
  program.kill('SIGINT')
  expect(await program.ended).toEqual({ code: null, signal: 'SIGINT', lines: ['ready', 'one', 'two'] })
})

test('nothing listens unasked, nor after close()', async () => {
  await using program = new Program(`
    const counts = () => process.listenerCount('SIGTERM') + process.listenerCount('SIGINT')
    const unasked = createLocks(memory())
    const [one, two] = [createLocks(memory(), { signals: true }), createLocks(memory(), { signals: true })]
    say('asked: ' + counts())
    await one.close()
    say('one closed: ' + counts())
    await two.close()
    say('both closed: ' + counts())
    await unasked.close()
    clearInterval(server)`)
  expect(await program.ended).toEqual({
    code: 0,
    signal: null,
    lines: ['asked: 2', 'one closed: 2', 'both closed: 0'],
  })
})
