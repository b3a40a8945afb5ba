// Three web servers, one payment that is sent to all of them at once. The one that works on it is killed in the middle:
// another takes over, and all clients get the same answer. The payment provider has charged once.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once as event } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from 'holdfast'
import { once } from 'holdfast/once'

if (process.argv[2] === undefined) await town()
else await server(process.argv[2])

/** What every web server does. */
async function server(file) {
  const locks = await connect(`sqlite:${file}`, { ttl: '2s' })
  const pay = once(locks, { keep: '24h', wait: '20s' })
  const answer = async ({ key, cents }) => {
    const { value, replayed } = await pay.run(key, { scope: 'shop 7', fingerprint: { cents } }, async (attempt) => {
      const charge = await attempt.step('charge', () => charged(attempt, cents))
      await received(`attempt ${attempt.number} has charged`)
      return { charge, paid: cents }
    })
    process.send({ answer: { value, replayed } })
  }
  process.on('message', (message) => {
    if (message.key !== undefined) void answer(message)
  })
  process.send({ ready: true })
}

/** Ask the payment provider, which is in the other process here. It is given the id of the attempt. */
async function charged({ id, number }, cents) {
  process.send({ charge: { id, number, cents } })
  const [{ charge }] = await event(process, 'charged')
  return charge
}

/** Something happens, and it takes a while. */
async function received(what) {
  process.send({ what })
  await event(process, 'go on')
}

process.on('message', (message) => {
  if (message.charge) process.emit('charged', message)
  if (message.goOn) process.emit('go on')
})

/** The clients, the payment provider, and the one who pulls the plug. */
async function town() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-once-'))
  const charges = new Map()
  const answers = []
  let killed
  const servers = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const child = fork(fileURLToPath(import.meta.url), [join(folder, 'locks.db')])
      await event(child, 'message')
      return child
    }),
  )
  const answered = servers.map(
    (child) =>
      new Promise((resolve) => {
        child.on('message', ({ charge, what, answer }) => {
          if (charge) {
            // The provider knows the id: it charges once for it, however often it is asked.
            if (!charges.has(charge.id)) charges.set(charge.id, `charge-${charges.size + 1}`)
            console.log(`attempt ${charge.number} asks the provider for ${charge.cents}: ${charges.get(charge.id)}`)
            child.send({ charge: charges.get(charge.id) })
          }
          if (what && killed === undefined) {
            console.log(`${what}: its server is killed`)
            killed = child
            child.kill('SIGKILL')
            resolve()
          } else if (what) {
            console.log(what)
            child.send({ goOn: true })
          }
          if (answer) {
            console.log(answer.replayed ? 'a duplicate is given' : 'the work has answered', answer.value)
            answers.push(answer)
            resolve()
          }
        })
      }),
  )
  for (const child of servers) child.send({ key: 'order-42', cents: 1250 })
  await Promise.all(answered)

  assert.equal(charges.size, 1, 'charged once')
  assert.equal(answers.length, 2, 'both servers that live have answered')
  for (const { value } of answers) assert.deepEqual(value, { charge: 'charge-1', paid: 1250 })
  assert.equal(answers.filter(({ replayed }) => !replayed).length, 1, 'one of them has worked')

  const living = servers.filter((child) => child !== killed)
  const ended = living.map((child) => event(child, 'exit'))
  for (const child of living) child.kill()
  await Promise.all(ended)
  rmSync(folder, { recursive: true })
}
