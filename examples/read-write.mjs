// Readers together, a writer alone, and no entry overtakes.
import assert from 'node:assert/strict'
import { createLocks } from 'holdfast'
import { memory } from 'holdfast/memory'

const locks = createLocks(memory())
const doc = locks.rw('doc:7')
const story = []

const one = await doc.read.acquire()
const two = await doc.read.acquire()
story.push('two readers')

const writing = doc.write.using(() => story.push('the writer'))
const late = doc.read.using(() => story.push('a reader who came after the writer'))

await one.release()
await two.release()
await Promise.all([writing, late])
assert.deepEqual(story, ['two readers', 'the writer', 'a reader who came after the writer'])
console.log(story.join(', then '))
await locks.close()
