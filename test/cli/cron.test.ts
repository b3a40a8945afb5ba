/** `holdfast cron`: the jobs of a fleet and their last runs, for people and as JSON. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Locks } from '../../src/locks.ts'
import { tick } from '../../src/recipes/cron/index.ts'
import { World } from './holdfast.ts'

const TICK = Math.floor(Date.now() / 1000) * 1000
const ISO = new Date(TICK).toISOString()
const SHOWN = ISO.replace('.000Z', 'Z')

let world: World
let locks: Locks
beforeEach(async () => {
  world = new World()
  locks = await world.locks({ holder: 'web-1' })
})
afterEach(() => world[Symbol.asyncDispose]())

test('without a job, there is nothing to list', async () => {
  expect(await world.run('cron', 'ls')).toMatchObject({ exit: 0, stdout: '' })
  expect(await world.json('cron', 'ls')).toEqual({ holdfast: 1, command: 'cron', prefix: '', jobs: [] })
  expect(await world.run('cron', 'history', 'nightly')).toMatchObject({
    exit: 0,
    stdout: '',
    stderr: "holdfast: no run of 'nightly' is known\n",
  })
})

test('jobs are listed by name, with how their last run ended; the history has one row for each run', async () => {
  await tick(locks, 'nightly', TICK - 1000, () => Promise.reject(new Error('no \x1b[31mdisk'))).catch(() => {})
  await tick(locks, 'nightly', TICK, () => {})
  await tick(locks, 'alone', TICK, () => {})
  const done = { tick: ISO, outcome: 'done', attempt: 1, holder: 'web-1', error: null, missed: 0 }
  expect(await world.json('cron', 'ls')).toMatchObject({
    jobs: [{ name: 'alone' }, { name: 'nightly', tick: ISO, last: { ...done, tookMs: expect.any(Number) } }],
  })
  expect(await world.json('cron', 'ls', 'night')).toMatchObject({ jobs: [{ name: 'nightly' }] })
  const listed = await world.run('cron', 'ls', 'night')
  expect(listed.stdout).toMatch(new RegExp(`^JOB +SCHEDULE +LAST +OUTCOME.*\nnightly .* ${SHOWN} +done .* web-1\n$`))

  expect(await world.json('cron', 'history', 'nightly')).toMatchObject({
    name: 'nightly',
    runs: [done, { outcome: 'failed', error: 'no \x1b[31mdisk', token: expect.stringMatching(/^\d+$/) }],
  })
  const { stdout } = await world.run('cron', 'history', 'nightly')
  expect(stdout.split('\n')).toEqual([
    expect.stringMatching(/^TICK +ATTEMPT +OUTCOME +LATE +TOOK +MISSED +HOLDER +ERROR$/),
    expect.stringMatching(new RegExp(`^${SHOWN} +1 +done .* web-1$`)),
    expect.stringMatching(/ failed .* no \\u\{001b\}\[31mdisk$/),
    '',
  ])
})

test('a run that goes on is told from one whose process has died', async () => {
  const other = await world.locks({ holder: 'web-2' })
  let goOn = (): void => {}
  const going = new Promise<void>((resolve) => {
    goOn = resolve
  })
  const begun = new Promise<void>((resolve) => {
    void tick(other, 'nightly', TICK, () => {
      resolve()
      return going
    }).catch(() => {})
  })
  await begun
  expect(await world.json('cron', 'ls')).toMatchObject({ jobs: [{ last: { outcome: 'running', tookMs: null } }] })
  await other.close()
  goOn()
  expect(await world.json('cron', 'ls')).toMatchObject({ jobs: [{ last: { outcome: 'lost' } }] })
})

test('what cannot be meant is refused', async () => {
  expect(await world.run('cron', 'list')).toMatchObject({
    exit: 64,
    stderr: expect.stringMatching(/cron ls or history/),
  })
  expect(await world.run('cron', 'history')).toMatchObject({ exit: 64, stderr: expect.stringMatching(/which job/) })
})
