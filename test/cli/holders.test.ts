/** How holders are called, and since when they hold: what show and ls have of them, and what a waiter says in a log. */
import { hostname } from 'node:os'
import { pathToFileURL } from 'node:url'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, type Running, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

interface Shown {
  readonly entries: readonly Record<string, unknown>[]
}

const show = (key: string): Promise<Shown> => world.json<Shown>('show', key)
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)

/** A program of a user that holds `key`. */
async function libraryHolder(key: string, name?: string): Promise<Running> {
  const index = JSON.stringify(pathToFileURL('dist/src/index.js').href)
  const options = name === undefined ? {} : { holder: name }
  world.write(
    'holder.mjs',
    `import { connect } from ${index}
    const locks = await connect(process.env.HOLDFAST_URL, ${JSON.stringify(options)})
    await locks.mutex(process.argv[2]).using(() => new Promise(() => {}))`,
  )
  const run = world.spawn(process.execPath, [world.path('holder.mjs'), key])
  await eventually('a holder', async () => (await show(key)).entries.length === 1)
  return run
}

test('show tells since when, and never has a blank holder: a program is shown by its script', async () => {
  const program = await libraryHolder('lib')
  const [entry] = (await show('lib')).entries
  expect(entry).toMatchObject({ pid: program.pid, command: 'holder.mjs', since: TIME })
  expect(Date.now() - Date.parse(String(entry?.since))).toBeLessThan(60_000)
  expect((await world.run('show', 'lib')).stdout).toMatch(/SINCE .*\n.* \d{4}-\d\d-\d\dT[\d:]+Z .* holder\.mjs\n$/)
  expect(await world.json('ls', '-l')).toMatchObject({ lines: [{ key: 'lib', since: TIME, command: 'holder.mjs' }] })
  const named = await libraryHolder('named', 'bare:1')
  expect((await world.run('show', 'named')).stdout, 'an older library has no script').toMatch(/ bare:1\n$/)
  for (const each of [program, named]) {
    each.signal('SIGKILL')
    await each.ended
  }
})

test('a run that waits, in a log, says once who holds; with -q it says nothing', async () => {
  world.start(['run', 'k', '--', 'sleep', '60'])
  await eventually('a holder', async () => (await show('k')).entries.length === 1)
  const waiters = [world.start(['run', 'k', '--', 'true']), world.start(['run', 'k', '-q', '--', 'true'])]
  const [loud, quiet] = waiters as [Running, Running]
  const line = new RegExp(`^holdfast: waiting for 'k': held by ${hostname()} pid \\d+ \\(sleep 60\\) for \\S+\\n$`)
  await eventually('its line', () => line.test(loud.stderr))
  for (const each of waiters) each.signal('SIGTERM')
  expect((await loud.ended).stderr).toMatch(line)
  expect((await quiet.ended).stderr).toBe('')
})
