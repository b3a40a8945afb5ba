/** A signal that tells the truth after a stall. */
import { describe, expect, test } from 'vitest'
import { truthfulController } from '../../src/core/signal.ts'

/** It is over as soon as the test says so; it aborts only when it is looked at. */
function stalled(): { signal: AbortSignal; over: () => void; reason: Error } {
  let isOver = false
  const reason = new Error('over')
  const controller = truthfulController(() => {
    if (isOver) controller.abort(reason)
  })
  return {
    signal: controller.signal,
    reason,
    over: () => {
      isOver = true
    },
  }
}

describe('a look is told the truth', () => {
  test('by `aborted`', () => {
    const { signal, over } = stalled()
    expect(signal.aborted).toBe(false)
    over()
    expect(signal.aborted).toBe(true)
  })

  test('by `reason`', () => {
    const { signal, over, reason } = stalled()
    expect(signal.reason).toBeUndefined()
    over()
    expect(signal.reason).toBe(reason)
  })

  test('by `throwIfAborted`', () => {
    const { signal, over, reason } = stalled()
    signal.throwIfAborted()
    over()
    expect(() => signal.throwIfAborted()).toThrow(reason)
  })

  test('by `AbortSignal.any`, when it is made', () => {
    const { signal, over, reason } = stalled()
    over()
    const any = AbortSignal.any([new AbortController().signal, signal])
    expect(any.aborted).toBe(true)
    expect(any.reason).toBe(reason)
  })
})

describe('the look itself aborts', () => {
  test('so listeners hear of it, once', () => {
    const { signal, over } = stalled()
    let heard = 0
    signal.addEventListener('abort', () => {
      heard += 1
    })
    over()
    expect(heard).toBe(0)
    void signal.aborted
    void signal.aborted
    expect(heard).toBe(1)
  })

  test('so signals derived from it earlier are aborted too', () => {
    const { signal, over, reason } = stalled()
    const any = AbortSignal.any([signal])
    over()
    void signal.aborted
    expect(any.aborted).toBe(true)
    expect(any.reason).toBe(reason)
  })

  test('also when it is looked at by its own listeners', () => {
    const { signal, over } = stalled()
    const seen: boolean[] = []
    signal.addEventListener('abort', () => seen.push(signal.aborted))
    over()
    void signal.aborted
    expect(seen).toEqual([true])
  })
})

test('it is a real AbortSignal: what takes one takes it', async () => {
  const { signal, over, reason } = stalled()
  expect(signal).toBeInstanceOf(AbortSignal)
  const { setTimeout } = await import('node:timers/promises')
  const sleeping = setTimeout(3_600_000, undefined, { signal })
  over()
  void signal.aborted
  await expect(sleeping).rejects.toMatchObject({ name: 'AbortError', cause: reason })
})
