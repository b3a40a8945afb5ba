/**
 * One worker of replace.processes.test.ts: told of uploads, it does them, and goes on with those that were begun before
 * by a process that was killed. The test decides at each gate whether the work goes on, and whether this process lives.
 */
import { connect } from '../../dist/src/index.js'
import { replace } from '../../dist/src/recipes/replace/index.js'
import { lists } from './replace.lists.mjs'

const [locksUrl, listUrl, kind, ttl] = process.argv.slice(2)
const locks = await connect(locksUrl, { ttl: Number(ttl) })
const store = listUrl === locksUrl ? undefined : await connect(listUrl)
const list = await lists[kind](listUrl)

const opening = new Map()
let gates = 0

/** Ask the test whether to go on. */
function gate(at, upload, generation, batch) {
  const name = String(++gates)
  return new Promise((resolve) => {
    opening.set(name, resolve)
    process.send({ gate: name, at, upload, generation, batch })
  })
}

function work({ id, batches, size }) {
  return async (turn) => {
    const { generation } = turn
    await gate('begun', id, generation, turn.stored)
    let number = turn.stored
    for await (const batch of turn.resume(numbers(batches))) {
      number += 1
      if (batch !== number) throw new Error(`batch ${batch} came after ${number - 1}`)
      const emails = numbers(size).map((nth) => `${id}.${batch}.${nth}`)
      await list.begin(
        (tx) =>
          turn.batch(tx, async () => {
            await list.insert(tx, generation, batch, emails)
            await gate('inserted', id, generation, batch)
          }),
        () => gate('storing', id, generation, batch),
      )
      await gate('stored', id, generation, batch)
    }
    await list.begin(
      (tx) => turn.publish(tx, () => list.flip(tx, generation)),
      () => gate('publishing', id, generation, batches),
    )
    await gate('published', id, generation, batches)
  }
}

const numbers = (count) => Array.from({ length: count }, (_, index) => index + 1)

/** A client that retries until it is answered. A process that is stopped keeps files and rows busy for a while. */
async function outcomeOf(upload) {
  const { id, key, order, newest } = upload
  const options = { newest, upload: id, ...(order === undefined ? {} : { order }), ...(store && { store }) }
  for (;;) {
    try {
      return (await replace(locks, key, options, work(upload))).state
    } catch (error) {
      if (error.code === 'SUPERSEDED') return 'superseded'
      const worthRetrying = error.code === 'LEASE_LOST' || error.transient === true
      if (!worthRetrying && !/timeout|locked|busy|deadlock|serialize/i.test(error.message)) throw error
    }
  }
}

process.on('message', ({ upload, open }) => {
  if (open !== undefined) opening.get(open)?.()
  if (upload === undefined) return
  outcomeOf(upload).then(
    (outcome) => process.send({ ended: upload.id, outcome }),
    // The test fails with these words: an exit code alone says nothing.
    (error) => process.send({ failed: error.stack }),
  )
})
process.on('disconnect', () => process.exit())
process.send({ ready: true })
