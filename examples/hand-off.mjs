// Three processes want one lock. The first one gives it back, the second one is killed: who holds, and when.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connect } from 'holdfast'

const [, , file] = process.argv
await (file === undefined ? story() : worker(`sqlite:${file}`))

/** Holds the lock until it is told to release it. */
async function worker(url) {
  const locks = await connect(url)
  const say = (text) => process.send({ text, at: Date.now() })
  say('waits')
  const lease = await locks.mutex('till').acquire()
  say(`holds, token ${lease.token}`)
  await once(process, 'message')
  say('releases')
  await lease.release()
  await locks.close()
  process.disconnect()
}

async function story() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-hand-off-'))
  const locks = await connect(`sqlite:${join(folder, 'locks.db')}`)
  const startedAt = Date.now()
  const tokens = []
  const holding = []
  const say = (column, text, at = Date.now()) =>
    console.log(`${String(at - startedAt).padStart(6)} ms  ${' '.repeat(22 * column)}${text}`)

  /** A process that stands in line when this resolves. */
  async function start(column) {
    const child = fork(fileURLToPath(import.meta.url), [join(folder, 'locks.db')])
    const held = new Promise((resolve) => {
      child.on('message', ({ text, at }) => {
        say(column, text, at)
        if (!text.startsWith('holds')) return
        tokens.push(BigInt(text.replace(/\D/g, '')))
        resolve()
      })
    })
    holding.push(held)
    for await (const { entries } of locks.watch('till')) if (entries.length > column) return child
  }

  console.log(
    `           ${['A', 'B', 'C']
      .map((name) => name.padEnd(22))
      .join('')
      .trimEnd()}`,
  )
  const a = await start(0)
  await holding[0]
  const b = await start(1)
  const c = await start(2)
  a.send('release')
  await holding[1]
  await sleep(300)
  say(1, '━━ kill -9 ━━')
  b.kill('SIGKILL')
  await holding[2]
  await sleep(300)
  c.send('release')
  await once(c, 'exit')
  assert.deepEqual(
    tokens,
    tokens.toSorted((one, other) => Number(one - other)),
  )
  await locks.close()
  rmSync(folder, { recursive: true })
}
