/** `holdfast stock show`: what is sold, held and left, for people and as JSON. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Locks } from '../../src/locks.ts'
import { stock } from '../../src/recipes/stock/index.ts'
import { World } from './holdfast.ts'

let world: World
let locks: Locks
beforeEach(async () => {
  world = new World()
  locks = await world.locks()
})
afterEach(() => world[Symbol.asyncDispose]())

test('shows each item, how many holds there are, and when the next one lapses', async () => {
  const seats = stock(locks, 'concert:9', { hold: '24h' })
  await seats.set({ A: 20, 'box 7': 2 })
  await seats.reserve('cart 1', { A: 2, 'box 7': 2 })
  await seats.reserve('cart 2', { A: 1 })
  await seats.confirm('cart 2')
  const view = await world.json('stock', 'show', 'concert:9')
  expect(view).toMatchObject({
    name: 'concert:9',
    items: [
      { item: 'A', stock: 20, sold: 1, held: 2, left: 17 },
      { item: 'box 7', stock: 2, sold: 0, held: 2, left: 0 },
    ],
    holds: 1,
    nextLapseMs: expect.any(Number),
  })
  const { stdout } = await world.run('stock', 'show', 'concert:9')
  expect(stdout.split('\n')).toEqual([
    expect.stringMatching(/^ITEM +STOCK +SOLD +HELD +LEFT$/),
    expect.stringMatching(/^A +20 +1 +2 +17$/),
    expect.stringMatching(/^box 7 +2 +0 +2 +0$/),
    expect.stringMatching(/^1 hold, the next one lapses in 2[34]h/),
    '',
  ])
})

test('says so where there is no such stock, and which verb and name it wants', async () => {
  expect(await world.run('stock', 'show', 'concert:8')).toMatchObject({
    exit: 0,
    stdout: '',
    stderr: "holdfast: there is no stock 'concert:8'\n",
  })
  expect(await world.run('stock', 'show')).toMatchObject({ exit: 64 })
  expect(await world.run('stock', 'show', 'a\nb')).toMatchObject({ exit: 64 })
  expect(await world.run('stock', 'shwo', 'a')).toMatchObject({ exit: 64, stderr: expect.stringContaining('show') })
})
