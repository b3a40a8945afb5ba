/**
 * One process of cache.processes.test.ts: told a key, it asks for it many times at once. What it fills is decided by
 * the test: each fill tells that it has begun, and waits for its answer.
 */
import { connect } from '../../dist/src/index.js'
import { cache } from '../../dist/src/recipes/cache/index.js'

const [url, library, options] = process.argv.slice(2)
const { get, invalidate } = library === 'holdfast' ? await holdfast() : await bentocache()
const opening = new Map()
let fills = 0

async function holdfast() {
  const { ttl, cache: asked } = JSON.parse(options)
  const locks = await connect(url, { ttl })
  const pages = cache(locks, asked)
  return { get: (key) => pages.get(key, () => filled(key)), invalidate: (key) => pages.invalidate(key) }
}

/** Without a first level, on the same server. */
async function bentocache() {
  const { BentoCache, bentostore } = await import('bentocache')
  const { redisDriver } = await import('bentocache/drivers/redis')
  const { Redis } = await import('ioredis')
  const layer = redisDriver({ connection: new Redis(url) })
  const bento = new BentoCache({ default: 'redis', stores: { redis: bentostore({ ttl: '1m' }).useL2Layer(layer) } })
  return {
    get: (key) => bento.getOrSet({ key, factory: () => filled(key) }),
    invalidate: (key) => bento.delete({ key }),
  }
}

function filled(key) {
  fills += 1
  const fill = fills
  return new Promise((resolve, reject) => {
    opening.set(fill, { resolve, reject })
    process.send({ fill, key })
  })
}

async function ask(id, key, callers) {
  const asked = Array.from({ length: callers }, () =>
    get(key).then(String, (error) => `${error.name}: ${error.message}`),
  )
  process.send({ id, answers: [...new Set(await Promise.all(asked))] })
}

process.on('message', ({ id, key, callers, invalidated, open, value, failure }) => {
  if (key !== undefined && callers !== undefined) void ask(id, key, callers)
  // The test fails with these words: an exit code alone says nothing.
  const told = (answer) => process.send({ id, answers: [answer] })
  if (invalidated !== undefined)
    invalidate(invalidated).then(
      () => told('done'),
      (error) => told(error.stack),
    )
  if (open === undefined) return
  const { resolve, reject } = opening.get(open)
  if (failure === undefined) resolve(value)
  else reject(new Error(failure))
})
process.on('disconnect', () => process.exit())
process.send({ ready: true })
