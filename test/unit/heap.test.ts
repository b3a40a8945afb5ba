/** The heap, against a sorted list. */
import { deepEqual, equal } from 'node:assert/strict'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Heap, type Heaped } from '../../src/core/heap.ts'

interface Item extends Heaped {
  readonly name: number
}

test('the earliest is on top, whatever was put, moved and removed before', () => {
  const change = fc.record({ name: fc.nat(15), at: fc.oneof(fc.integer({ min: 0, max: 20 }), fc.constant(undefined)) })
  fc.assert(
    fc.property(fc.array(change, { maxLength: 200 }), (changes) => {
      const heap = new Heap<Item>()
      const items = Array.from({ length: 16 }, (_, name): Item => ({ name, at: 0, slot: -1 }))
      const model = new Map<Item, number>()
      for (const { name, at } of changes) {
        const item = items[name] as Item
        if (at === undefined) {
          heap.remove(item)
          model.delete(item)
        } else {
          heap.put(item, at)
          model.set(item, at)
        }
        equal(heap.size, model.size)
        equal(heap.peek()?.at, model.size === 0 ? undefined : Math.min(...model.values()))
        deepEqual(new Set(heap.values()), new Set(model.keys()))
        for (const each of items) equal(each.slot >= 0, model.has(each))
      }
      const drained: number[] = []
      for (let item = heap.peek(); item !== undefined; item = heap.peek()) {
        drained.push(item.at)
        heap.remove(item)
      }
      deepEqual(
        drained,
        [...model.values()].toSorted((a, b) => a - b),
      )
    }),
    { numRuns: 300 },
  )
})

test('removing what is not in it changes nothing', () => {
  const heap = new Heap<Item>()
  const item: Item = { name: 1, at: 0, slot: -1 }
  heap.remove(item)
  heap.put(item, 5)
  heap.remove(item)
  heap.remove(item)
  expect(heap.size).toBe(0)
  expect(heap.peek()).toBeUndefined()
})
