/**
 * Names in Redis: every line has names of its own, all in the slot of its server key. The hash is checked against
 * values that Redis itself gives (CLUSTER KEYSLOT).
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { slotOf, tagOfSlot } from '../../src/clients/redis/names.ts'
import { counterKey, entriesPatterns, lineOfEntries, siblings } from '../../src/engines/redis/names.ts'

const CLUSTER = { cluster: true, keyPrefix: '' }

/** Keys made of what makes trouble. */
const oddKeys = fc.string({
  unit: fc.constantFrom('{', '}', 'a', 'b', ':', '/', '*', 'é', 'hf1:entries:'),
  minLength: 1,
  maxLength: 8,
})

test.each([
  ['123456789', 12739],
  ['order:42', 8691],
  ['{user:7}:cart', 2780],
  ['user:7', 2780],
  ['', 0],
  ['é', 10180],
])('the slot of %j is %i', (name, slot) => {
  expect(slotOf(name)).toBe(slot)
})

test('an empty tag, and one that is not closed, are no tags', () => {
  expect(slotOf('{}a')).not.toBe(slotOf('{}b'))
  expect(slotOf('{a')).not.toBe(slotOf('{b'))
  expect(slotOf('x{a}{b}')).toBe(slotOf('a'))
})

test('every slot has a tag, and its counter lies in it', () => {
  for (let slot = 0; slot < 16384; slot += 1) expect(slotOf(`{${tagOfSlot(slot)}}`)).toBe(slot)
  expect(slotOf(counterKey(4711))).toBe(4711)
})

test('the keys of a line lie in the slot of its server key', () => {
  fc.assert(
    fc.property(oddKeys, (serverKey) => {
      for (const name of siblings(serverKey)) expect(slotOf(name)).toBe(slotOf(serverKey))
    }),
    { numRuns: 2000 },
  )
})

test('no two lines share a name, and no name is a server key with the usual prefix', () => {
  fc.assert(
    fc.property(oddKeys, oddKeys, (one, other) => {
      fc.pre(one !== other)
      expect(siblings(one).filter((name) => siblings(other).includes(name))).toEqual([])
    }),
    { numRuns: 2000 },
  )
  expect(siblings('x').every((name) => name.startsWith('hf1:'))).toBe(true)
})

test('from the name of its entries the line is known again', () => {
  fc.assert(
    fc.property(oddKeys, (serverKey) => {
      expect(lineOfEntries(siblings(serverKey)[0] as string, CLUSTER)).toBe(serverKey)
      expect(lineOfEntries(`hf1:entries:{${serverKey}}`, { cluster: false, keyPrefix: 'app:' })).toBe(serverKey)
    }),
    { numRuns: 2000 },
  )
  expect(lineOfEntries('hf1:queue:{a}', CLUSTER)).toBe(undefined)
})

test('a prefix that looks like a pattern is taken for itself', () => {
  expect(entriesPatterns('a*[b]?\\', { cluster: false, keyPrefix: '' })).toEqual(['hf1:entries:{a\\*\\[b\\]\\?\\\\*'])
})
