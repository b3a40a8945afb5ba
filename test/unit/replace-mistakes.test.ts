/** `replace`, used wrongly: by the work, and by its options. */
import { afterEach, describe, expect, test } from 'vitest'
import { UnsupportedError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { removeRetired, replace, type Turn } from '../../src/recipes/replace/index.ts'
import { closeAll, locksOn } from './once-world.ts'
import { KEY, Members } from './replace-world.ts'

afterEach(closeAll)

describe('mistakes of the work', () => {
  const locks = () => locksOn(memory())
  const members = new Members()

  test('it has to publish', async () => {
    await expect(replace(locks(), KEY, {}, () => 1)).rejects.toThrow(
      "the work for 'group:7' has returned without turn.publish()",
    )
  })

  test('it cannot publish before it has gone through all batches', async () => {
    const work = async (turn: Turn): Promise<void> => {
      for await (const names of turn.resume([['a'], ['b']])) {
        await members.insert(turn, names)
        await turn.publish(null)
      }
    }
    await expect(replace(locks(), KEY, {}, work)).rejects.toThrow(/when turn.resume\(\) has gone through all batches/)
  })

  test('it cannot leave a batch out', async () => {
    const work = async (turn: Turn): Promise<void> => {
      for await (const names of turn.resume([['a'], ['b']])) if (names[0] === 'b') await members.insert(turn, names)
    }
    await expect(replace(locks(), KEY, {}, work)).rejects.toThrow("batch 1 of 'group:7' is not stored")
    const last = async (turn: Turn): Promise<void> => {
      for await (const names of turn.resume([['a'], ['b']])) if (names[0] === 'a') await members.insert(turn, names)
      await turn.publish(null)
    }
    await expect(replace(locks(), KEY, {}, last)).rejects.toThrow("batch 2 of 'group:7' is not stored")
  })

  test('it cannot publish more batches than it was given: one of them may be there twice', async () => {
    const its = locks()
    const collecting = async (turn: Turn): Promise<void> => {
      const all: string[][] = []
      for await (const names of turn.resume([['a'], ['b']])) all.push(names)
      for (const names of all) await members.insert(turn, names)
      // As after a COMMIT that was made, and not answered: which batch it was is not known here.
      await members.insert(turn, ['b'])
      await turn.publish(null)
    }
    await expect(replace(its, KEY, { upload: 'u' }, collecting)).rejects.toThrow(
      "3 batches of 'group:7' are stored, and turn.resume() has given 2: call turn.batch() inside of its loop",
    )
    const none = async (turn: Turn): Promise<void> => {
      for await (const names of turn.resume([])) await members.insert(turn, names)
      await members.insert(turn, ['a'])
      await turn.publish(null)
    }
    await expect(replace(its, KEY, { upload: 'v' }, none)).rejects.toThrow("1 batches of 'group:7' are stored")
    // Without resume(), only the work knows how many there are.
    const alone = async (turn: Turn): Promise<void> => {
      for (const name of ['a', 'b']) await members.insert(turn, [name])
      await turn.publish(null)
    }
    expect(await replace(its, KEY, { upload: 'w' }, alone)).toMatchObject({ state: 'published' })
  })

  test('it can store what it was given after all of it was given, also after a crash', async () => {
    const its = locks()
    const collecting =
      (fails: boolean) =>
      async (turn: Turn): Promise<void> => {
        const all: string[][] = []
        for await (const names of turn.resume([['a'], ['b'], ['c']])) all.push(names)
        for (const [nth, names] of all.entries()) {
          if (fails && nth === 1) throw new Error('killed')
          await members.insert(turn, names)
        }
        await turn.publish(null)
      }
    await expect(replace(its, KEY, { upload: 'u' }, collecting(true))).rejects.toThrow('killed')
    expect(await replace(its, KEY, { upload: 'u' }, collecting(false))).toMatchObject({ state: 'published' })
  })

  test('it cannot write after it has published', async () => {
    const work = async (turn: Turn): Promise<void> => {
      await turn.publish(null)
      await members.insert(turn, ['late'])
    }
    // What was published stays so.
    expect(await replace(locks(), KEY, {}, work)).toEqual({ state: 'already', generation: 1 })
  })

  test('a resumed upload goes through its batches, and has as many as before', async () => {
    const its = locks()
    const failing = async (turn: Turn): Promise<void> => {
      for await (const names of turn.resume([['a'], ['b']])) await members.insert(turn, names)
      throw new Error('killed')
    }
    await expect(replace(its, KEY, { upload: 'u' }, failing)).rejects.toThrow('killed')
    await expect(replace(its, KEY, { upload: 'u' }, (turn) => members.insert(turn, ['c']))).rejects.toThrow(
      "2 batches of this upload of 'group:7' are stored: go through turn.resume(batches), which leaves them out",
    )
    await expect(replace(its, KEY, { upload: 'u' }, members.upload([['a']]))).rejects.toThrow(
      "2 batches of this upload of 'group:7' are stored, and now it has 1: another list is another upload",
    )
  })

  test('a transaction of an engine that has none is refused, with what helps', async () => {
    const work = (turn: Turn): Promise<unknown> => turn.batch({}, () => {})
    const refused = replace(locks(), KEY, {}, work)
    await expect(refused).rejects.toThrow(UnsupportedError)
    await expect(refused).rejects.toThrow(/memory has no transactions of yours .* give replace\(\) the option store/)
  })
})

test('what is wrong with the options is told before anything is done', async () => {
  const locks = locksOn(memory())
  const asked = (options: object): Promise<unknown> => replace(locks, KEY, options, () => 1)
  await expect(asked({ newst: 'wins' })).rejects.toThrow("unknown option 'newst' in replace(); did you mean 'newest'?")
  await expect(asked({ newest: 'loses' })).rejects.toThrow("newest must be 'wins', 'waits', 'fails'; got 'loses'")
  await expect(asked({ order: 1.5 })).rejects.toThrow('order must be a whole number that is exact; got 1.5')
  await expect(asked({ upload: '' })).rejects.toThrow("upload must be a string that is not empty; got ''")
  await expect(asked({ upload: 'u'.repeat(300) })).rejects.toThrow(RangeError)
  await expect(asked({ signal: 1 })).rejects.toThrow('signal must be an AbortSignal; got number')
  await expect(replace(locks, '', {}, () => 1)).rejects.toThrow('the key of a list must be a string that is not empty')
  await expect(replace(locks, KEY, {}, undefined as never)).rejects.toThrow(TypeError)
  const remove = { remove: () => {} }
  await expect(removeRetired(locks, KEY, { ...remove, limit: 0 })).rejects.toThrow(RangeError)
  await expect(removeRetired(locks, KEY, { ...remove, begin: {} as never })).rejects.toThrow(TypeError)
  await replace(locks, KEY, {}, (turn) => turn.publish(null))
  await replace(locks, KEY, {}, (turn) => turn.publish(null))
  const lazy = removeRetired(locks, KEY, { ...remove, begin: async () => {} })
  await expect(lazy).rejects.toThrow('begin() has not committed its transaction')
  await expect(removeRetired(locks, KEY, {} as never)).rejects.toThrow('remove must be a function')
})
