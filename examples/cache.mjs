// Four web servers, and a page that takes long to render. All of them are asked for it at once: one renders, and it is
// killed in the middle. Another one takes over, and all get its page. Then the page is changed while it is rendered:
// who asks after that is not given the old one.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once as event } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from 'holdfast'
import { cache } from 'holdfast/cache'

if (process.argv[2] === undefined) await town()
else await server(process.argv[2])

/** What every web server does. */
async function server(file) {
  const locks = await connect(`sqlite:${file}`, { ttl: '2s' })
  const pages = cache(locks, { ttl: '5m' })
  const render = async () => {
    process.send({ rendering: true })
    const [{ text }] = await event(process, 'rendered')
    return text
  }
  const answer = async (ask) => process.send({ answer: await pages.get('home', render), ask })
  const forget = async () => {
    await pages.invalidate('home')
    process.send({ invalidated: true })
  }
  process.on('message', (message) => {
    if (message.text) process.emit('rendered', message)
    if (message.ask) void answer(message.ask)
    if (message.changed) void forget()
  })
  process.send({ ready: true })
}

/** The visitors, the editor of the page, and the one who pulls the plug. */
async function town() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-cache-'))
  const servers = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const child = fork(fileURLToPath(import.meta.url), [join(folder, 'locks.db')])
      await event(child, 'message')
      return child
    }),
  )
  let asked = 0
  /** What this server gives to a visitor. */
  const visit = (child) => {
    asked += 1
    const ask = asked
    child.send({ ask })
    return new Promise((resolve) => child.on('message', (said) => said.ask === ask && resolve(said.answer)))
  }
  /** The next one of these that begins to render. */
  const rendering = (children) =>
    new Promise((resolve) => {
      for (const child of children) child.on('message', (said) => said.rendering && resolve(child))
    })

  const first = rendering(servers)
  const visits = servers.flatMap((child) => [1, 2, 3].map(() => ({ child, answer: visit(child) })))
  const killed = await first
  console.log('twelve visitors ask four servers, and one of those renders: it is killed')
  const living = servers.filter((child) => child !== killed)
  const second = rendering(living)
  killed.kill('SIGKILL')
  const next = await second
  console.log('another one renders in its place')
  next.send({ text: 'Welcome' })
  const served = visits.filter(({ child }) => child !== killed)
  const answers = await Promise.all(served.map(({ answer }) => answer))
  console.log('nine visitors are given', new Set(answers))
  assert.deepEqual(answers, Array(9).fill('Welcome'))

  const [editor, reader] = living
  const forgotten = () => new Promise((resolve) => editor.on('message', (said) => said.invalidated && resolve()))
  editor.send({ changed: true })
  await forgotten()
  const old = rendering([reader])
  const before = visit(reader)
  await old
  editor.send({ changed: true })
  await forgotten()
  console.log('the page was changed again while it is rendered')
  const after = living.map(visit)
  const again = rendering(living)
  reader.send({ text: 'Good day' })
  console.log('who asked before is given', await before)
  const renders = await again
  renders.send({ text: 'Good evening' })
  console.log('who asked after is given', new Set(await Promise.all(after)))
  assert.deepEqual(await Promise.all(after), Array(3).fill('Good evening'))

  const ended = living.map((child) => event(child, 'exit'))
  for (const child of living) child.kill()
  await Promise.all(ended)
  rmSync(folder, { recursive: true })
}
