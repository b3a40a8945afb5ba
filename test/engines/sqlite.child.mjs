/**
 * A process with a SQLite engine of its own, which does what its test says: sqlite.process.ts is the other end. It uses
 * what `npm run build` made.
 */
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, closeSync, openSync, rmSync, unlinkSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { defaultFile, sqlite } from '../../dist/src/engines/sqlite/index.js'
import { createLocks } from '../../dist/src/locks.js'

let engine

const doing = {
  async open(options) {
    engine = sqlite(options)
    await engine.subscribe((news) => process.send({ news, at: process.hrtime.bigint() }))
    return process.pid
  },
  enter: (claims) => engine.enter(claims),
  renew: (places) => engine.renew(places),
  leave: (places) => engine.leave(places),
  evict: (key, token, how) => engine.evict(key, token, how),
  inspect: (key) => engine.inspect(key),
  close: () => engine[Symbol.asyncDispose](),
  now: () => process.hrtime.bigint(),
  wallMs: () => Date.now(),

  alsoAlive: (group) => engine.alsoAlive(group),

  /** Start a process group that does nothing, and live on with it. */
  async adopt() {
    const sleeper = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' })
    await once(sleeper, 'spawn')
    await engine.alsoAlive(sleeper.pid)
    return sleeper.pid
  },

  /** A process beside this one, in the same namespaces, that enters as told. */
  async enterBeside(options, claims) {
    const child = fork(fileURLToPath(import.meta.url), { serialization: 'advanced' })
    await ask(child, 'open', options)
    return ask(child, 'enter', claims)
  },

  /**
   * Take and give back the lock many times. The holder makes a file that only one can make, and writes down the
   * token.
   */
  async cycle({ key, times, marker, log }) {
    const locks = createLocks(engine, { ttl: '30s' })
    for (let done = 0; done < times; done += 1) {
      const lease = await locks.mutex(key).acquire()
      closeSync(openSync(marker, 'wx'))
      appendFileSync(log, `${lease.token}\n`)
      if (done % 7 === 0) await new Promise(setImmediate)
      unlinkSync(marker)
      await lease.release()
    }
  },

  /** Become a user without rights. What is needed has been loaded by now. */
  drop(uid) {
    process.setgid(uid)
    process.setuid(uid)
  },
  defaultFile: () => defaultFile(),

  /** Take up room on the disk. */
  reserve: (file, bytes) => writeFileSync(file, Buffer.alloc(bytes)),
  remove: (file) => rmSync(file),
}

async function ask(child, verb, ...args) {
  child.send({ number: 0, verb, args })
  const [answer] = await once(child, 'message')
  return answer.result
}

async function answer({ number, verb, args }) {
  try {
    process.send({ number, result: await doing[verb](...args) })
  } catch (error) {
    const { name, message, outcome, transient } = error
    process.send({ number, error: { name, message, outcome, transient } })
  }
}

process.on('message', (question) => void answer(question))
process.on('disconnect', () => process.exit())
