/** What is done once: also where the work asks for itself again, every caller is answered. */
import { expect, test } from 'vitest'
import { FirstCall } from '../../src/core/first-call.ts'
import { settled, watched } from './world.ts'

test.each(['within', 'after'] as const)(
  'each caller is told of work that throws at once, also one that asks again %s it',
  async (when) => {
    const call = new FirstCall<string>()
    let done = 0
    const asked: ReturnType<typeof watched<string>>[] = []
    const again = (): unknown => asked.push(watched(call.do(work)))
    function work(): Promise<string> {
      done += 1
      if (when === 'within') again()
      throw new Error('at once')
    }
    asked.push(watched(call.do(work)))
    if (when === 'after') again()
    await settled()
    for (const { error } of asked) expect(error).toMatchObject({ message: 'at once' })
    expect(done).toBe(1)
  },
)
