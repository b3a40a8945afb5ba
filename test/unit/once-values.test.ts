/** `once` with values, errors and records that are not as usual: none of them may repeat work or end the process. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { EngineError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { InProgressError, KeyReusedError, once, ReplayedFailureError } from '../../src/recipes/once/index.ts'
import { jsonSerializer } from '../../src/store/serializer.ts'
import { closeAll, gate, locksOn } from './once-world.ts'

afterEach(closeAll)

describe('a step', () => {
  test('that answers nothing was done all the same, and is not done again', async () => {
    const pay = once(locksOn(memory()))
    let mails = 0
    const work = (fails: boolean) =>
      pay.run('a', async (attempt) => {
        const answered = await attempt.step('mail', () => {
          mails += 1
        })
        if (fails) throw new Error('after the mail')
        return [mails, answered === undefined]
      })
    await expect(work(true)).rejects.toThrow('after the mail')
    expect((await work(false)).value).toEqual([1, true])
  })

  test('that answers what cannot be stored is not done again', async () => {
    const pay = once(locksOn(memory()))
    let charges = 0
    const work = () => pay.run('a', (attempt) => attempt.step('charge', () => BigInt(++charges)))
    await expect(work()).rejects.toThrow(/cannot be stored/)
    await expect(work()).rejects.toThrow(ReplayedFailureError)
    expect(charges).toBe(1)
  })

  test('whose answer was lost does not cost the result: no other execution has begun', async () => {
    const engine = memory()
    const { store } = engine
    const put: typeof store.put = async (changes) => {
      const answers = await store.put(changes)
      if (changes.every(({ value }) => !Buffer.from(value ?? []).includes('"mail"'))) return answers
      throw new EngineError('memory', 'the answer was lost', { outcome: 'unknown', transient: false })
    }
    const losing = { traits: store.traits, get: store.get.bind(store), put, list: store.list.bind(store) }
    const pay = once(locksOn(delegate(engine, { store: losing })))
    const { value } = await pay.run('a', async (attempt) => {
      await expect(attempt.step('mail', () => 'sent')).rejects.toThrow('the answer was lost')
      return 'paid'
    })
    expect(value).toBe('paid')
    expect(await pay.run('a', () => 'again')).toMatchObject({ value: 'paid', replayed: true })
  })
})

test('a record that cannot be read is an error of each caller, and never an unhandled rejection', async () => {
  let readable = true
  const decode = (bytes: Uint8Array): unknown => {
    if (readable) return jsonSerializer.decode(bytes)
    throw new SyntaxError('no JSON')
  }
  const pay = once(locksOn(memory()), { serialize: { encode: jsonSerializer.encode, decode } })
  const unhandled: unknown[] = []
  const hear = (reason: unknown): number => unhandled.push(reason)
  process.on('unhandledRejection', hear)
  const [begun, working] = [gate(), gate()]
  const first = pay.run('a', async () => {
    begun.open()
    await working.opened
    return 1
  })
  await begun.opened
  readable = false
  for (const wait of [0, 20]) await expect(pay.run('a', { wait }, () => 2)).rejects.toThrow('no JSON')
  const leaving = AbortSignal.abort(new Error('gone'))
  await expect(pay.run('a', { signal: leaving }, () => 2)).rejects.toThrow('gone')
  readable = true
  await expect(pay.run('a', { wait: 0 }, () => 2)).rejects.toThrow(InProgressError)
  working.open()
  await first
  await new Promise((resolve) => setImmediate(resolve))
  process.off('unhandledRejection', hear)
  expect(unhandled).toEqual([])
})

test('whatever the work throws is given to its caller, and is no crash', async () => {
  const pay = once(locksOn(memory()), { crashed: 'ask' })
  for (const [index, thrown] of [Object.create(null), Symbol('no'), null, undefined].entries()) {
    const work = () => Promise.reject(thrown)
    await expect(pay.run(`${index}`, work).catch((error: unknown) => error === thrown)).resolves.toBe(true)
    expect((await pay.run(`${index}`, () => 'next')).value).toBe('next')
  }
})

test('a fingerprint of bytes is that of the bytes, in whatever they are; what has no JSON is refused', async () => {
  const pay = once(locksOn(memory()))
  const bytes = (byte: number) => new Uint8Array([byte])
  await pay.run('a', { fingerprint: bytes(1).buffer }, () => 1)
  for (const fingerprint of [bytes(1), new DataView(bytes(1).buffer), bytes(1).buffer])
    expect(await pay.run('a', { fingerprint }, () => 2)).toMatchObject({ value: 1, replayed: true })
  for (const fingerprint of [bytes(2), new DataView(bytes(2).buffer), bytes(2).buffer])
    await expect(pay.run('a', { fingerprint }, () => 2)).rejects.toThrow(KeyReusedError)
  class Tagged extends Map {
    readonly label = 'a map with a field'
  }
  const forms = [new Tagged(), new URLSearchParams('a=1'), { form: new FormData() }]
  for (const fingerprint of [new Map(), new Set(), { body: new ArrayBuffer(1) }, ...forms])
    await expect(pay.run('b', { fingerprint }, () => 2)).rejects.toThrow(/fingerprint must be bytes/)
})

test('a fingerprint may have objects of classes, also where none of their fields is set', async () => {
  class Filter {
    declare readonly from?: string
  }
  const pay = once(locksOn(memory()))
  await pay.run('a', { fingerprint: [new Filter(), new Uint8Array()] }, () => 1)
  expect(await pay.run('a', { fingerprint: [{}, {}] }, () => 2)).toMatchObject({ value: 1, replayed: true })
  await expect(pay.run('a', { fingerprint: [{ from: 'x' }, {}] }, () => 2)).rejects.toThrow(KeyReusedError)
})
