/**
 * One process of scripts/mixed-versions.mjs: it loads the Holdfast that is built in a folder, and does what it is told,
 * one order after the other.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [root, url, name] = process.argv.slice(2)
const load = (file) => import(pathToFileURL(join(root, 'dist', 'src', file)).href)
const { connect } = await load('index.js')
const { once } = await load('recipes/once/index.js')
const { tick } = await load('recipes/cron/index.js')

const locks = await connect(url, { ttl: '3s', holder: name })
const payments = () => once(locks, { wait: '30s' })
const held = new Map()

const orders = {
  async hold(key) {
    const lease = await locks.mutex(key).acquire()
    held.set(key, lease)
    return String(lease.token)
  },
  async try(key) {
    const lease = await locks.mutex(key).tryAcquire()
    await lease?.release()
    return lease !== undefined
  },
  release: (key) => held.get(key).release(),
  /** Who holds and who waits, as this version reads it. */
  async line(key) {
    const { entries } = await locks.inspect(key)
    return entries.map(({ holder }) => holder)
  },
  /** Adds one to the number in a file, many times: a read and a write, which only the lock keeps together. */
  async count(key, file, rounds) {
    const tokens = []
    for (let round = 0; round < rounds; round++)
      await locks.mutex(key).using(async (lease) => {
        const number = Number(readFileSync(file, 'utf8'))
        await new Promise((resolve) => setImmediate(resolve))
        writeFileSync(file, String(number + 1))
        tokens.push([number, String(lease.token)])
      })
    return tokens
  },
  async once(key) {
    const { value, replayed } = await payments().run(key, async (attempt) => ({
      by: name,
      id: attempt.id,
      at: attempt.number,
    }))
    return { ...value, replayed }
  },
  /** Begins, and never ends: it is to be killed. */
  hang: (key) =>
    new Promise((resolve, reject) => {
      const begun = (attempt) => {
        resolve(attempt.id)
        return new Promise(() => {})
      }
      Promise.resolve()
        .then(() => payments().run(key, begun))
        .catch(reject)
    }),
  async tick(job, at) {
    const { ran, why } = await tick(locks, job, new Date(at), { grace: '1h' }, async () => {})
    return ran ? 'ran' : why
  },
}

process.on('message', (message) => void obey(message))
process.on('disconnect', () => process.exit())
process.send({ id: 0 })

async function obey({ id, order, args }) {
  try {
    process.send({ id, answer: await orders[order](...args) })
  } catch (error) {
    process.send({ id, error: error.stack, unsupported: error.code === 'UNSUPPORTED' })
  }
}
