/** `replace` on the memory engine: who may write, what readers see, and what becomes of crashes. */
import { afterEach, describe, expect, test } from 'vitest'
import { AcquireTimeoutError, LeaseLostError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import {
  InProgressError,
  publishedUpload,
  type ReplaceOptions,
  replace,
  SupersededError,
} from '../../src/recipes/replace/index.ts'
import { closeAll, fleet, gate, locksOn, turns } from './once-world.ts'
import { KEY, Members, paused } from './replace-world.ts'

afterEach(closeAll)

test('readers see the old list until the new one is published, and then all of it', async () => {
  const locks = locksOn(memory())
  const members = new Members()
  const first = await replace(locks, KEY, {}, members.upload([['anna'], ['ben']]))
  expect(first).toEqual({ state: 'published', generation: 1, value: 'uploaded' })
  const during: (readonly string[])[] = []
  await replace(
    locks,
    KEY,
    { upload: 'b' },
    members.upload([['carl'], ['dora']], () => during.push(members.seen)),
  )
  expect(during).toEqual([
    ['anna', 'ben'],
    ['anna', 'ben'],
  ])
  expect(members.seen).toEqual(['carl', 'dora'])
  expect(await publishedUpload(locks, KEY)).toEqual({ generation: 2, upload: 'b' })
  expect(await publishedUpload(locks, 'another')).toBeUndefined()
  expect(await members.removeRetired({ locks })).toBe(2)
})

test('a list can be replaced by nothing', async () => {
  const locks = locksOn(memory())
  const members = new Members()
  await replace(locks, KEY, {}, members.upload([['anna']]))
  await replace(locks, KEY, {}, members.upload([]))
  expect(members.seen).toEqual([])
  expect(await members.removeRetired({ locks })).toBe(0)
})

describe('the newest wins', () => {
  test('the older one is told so, and cannot write any more', async () => {
    const { of } = fleet(2)
    const members = new Members()
    const older = paused(of(0), members, { upload: 'old' })
    const turn = await older.turn
    const told = gate<unknown>()
    turn.signal.addEventListener('abort', () => told.open(turn.signal.reason))
    const newer = replace(of(1).locks, KEY, { upload: 'new' }, members.upload([['new 1']]))
    expect(await told.opened).toBeInstanceOf(SupersededError)
    await expect(members.insert(turn, ['late'])).rejects.toThrow(SupersededError)
    await expect(turn.publish(null, members.flip)).rejects.toThrow(SupersededError)
    older.goOn()
    await expect(older.result).rejects.toThrow(SupersededError)
    expect(await newer).toMatchObject({ state: 'published', generation: 2 })
    expect(members.seen).toEqual(['new 1'])
    expect(await members.removeRetired(of(0))).toBe(1)
  })

  test('an older one that was stopped for longer than its ttl wakes, and is refused by what is stored', async () => {
    const { of, clock } = fleet(2)
    const members = new Members()
    const older = paused(of(0), members)
    const turn = await older.turn
    of(0).stopped = true
    const newer = replace(of(1).locks, KEY, {}, members.upload([['new 1']]))
    for (let seconds = 0; seconds < 5; seconds += 1) {
      await clock.advance(1_000)
      await turns()
    }
    expect(await newer).toMatchObject({ generation: 2 })
    older.goOn()
    await expect(older.result).rejects.toThrow(LeaseLostError)
    await expect(turn.publish(null, members.flip)).rejects.toThrow(LeaseLostError)
    expect(members.seen).toEqual(['new 1'])
  })

  test('also of those that wait: one of many that come together is published, the last one', async () => {
    const { of } = fleet(5)
    const members = new Members()
    const older = paused(of(0), members)
    await older.turn
    const files = [1, 2, 3, 4].map(async (nth) => {
      for (let turn = 0; turn < nth; turn += 1) await turns()
      return replace(of(nth).locks, KEY, {}, members.upload([[`file ${nth}`]]))
    })
    const settled = Promise.allSettled([older.result, ...files])
    await turns(200)
    older.goOn()
    const results = await settled
    expect(results.map(({ status }) => status)).toEqual([...Array<string>(4).fill('rejected'), 'fulfilled'])
    for (const result of results.slice(0, 4))
      expect((result as PromiseRejectedResult).reason).toBeInstanceOf(SupersededError)
    expect(members.seen).toEqual(['file 4'])
  })

  test('by a number of the caller: a lower one is refused at once, whenever it comes', async () => {
    const { of } = fleet(3)
    const members = new Members()
    const going = paused(of(0), members, { order: 42 })
    await going.turn
    const late = replace(of(1).locks, KEY, { order: 41 }, members.upload([['late']]))
    const refused = { key: KEY, generation: undefined, by: { generation: 1, upload: 'order 42', order: 42 } }
    await expect(late).rejects.toMatchObject(refused)
    // That of another upload with the same number, as well.
    const same = replace(of(1).locks, KEY, { order: 42, upload: 'x' }, members.upload([['same']]))
    await expect(same).rejects.toThrow(SupersededError)
    const newer = replace(of(2).locks, KEY, { order: 43 }, members.upload([['newer']]))
    newer.catch(() => {})
    await turns()
    going.goOn()
    await expect(going.result).rejects.toThrow(SupersededError)
    await newer
    await expect(replace(of(1).locks, KEY, { order: 42 }, members.upload([['late']]))).rejects.toThrow(
      "an upload of 'group:7' was superseded by generation 2 (upload 'order 43', order 43)",
    )
    expect(members.seen).toEqual(['newer'])
  })
})

test('the newest waits: one after the other, in order of arrival', async () => {
  const { of } = fleet(3)
  const members = new Members()
  const first = paused(of(0), members)
  await first.turn
  const seen: (readonly string[])[] = []
  const next = async (nth: number): Promise<unknown> =>
    replace(of(nth).locks, KEY, { newest: 'waits' }, async (turn) => {
      seen.push(members.seen)
      return members.upload([[`file ${nth}`]])(turn)
    })
  const second = next(1)
  await turns()
  const third = next(2)
  await turns()
  expect(seen).toEqual([])
  first.goOn()
  await Promise.all([first.result, second, third])
  expect(seen).toEqual([['old 1', 'old 2'], ['file 1']])
  expect(members.seen).toEqual(['file 2'])
})

test('one that waits gives way to one that wins and came after it', async () => {
  const { of } = fleet(3)
  const members = new Members()
  const first = paused(of(0), members)
  await first.turn
  const waiting = replace(of(1).locks, KEY, { newest: 'waits' }, members.upload([['waiting']]))
  waiting.catch(() => {})
  await turns()
  const winner = replace(of(2).locks, KEY, {}, members.upload([['winner']]))
  await turns()
  first.goOn()
  await expect(waiting).rejects.toThrow(SupersededError)
  await expect(first.result).rejects.toThrow(SupersededError)
  await winner
  expect(members.seen).toEqual(['winner'])
})

test('one that waits does not give way to one that wins and came before it', async () => {
  const { of } = fleet(3)
  const members = new Members()
  const first = paused(of(0), members)
  const turn = await first.turn
  // It is accepted, and learns of that when the next one stands in line.
  of(1).answerDelay = () => 60
  const winner = replace(of(1).locks, KEY, { upload: 'winner' }, members.upload([['winner']]))
  winner.catch(() => {})
  await turns()
  const waiting = replace(of(2).locks, KEY, { newest: 'waits' }, members.upload([['waiting']]))
  waiting.catch(() => {})
  await turns(100)
  expect(turn.signal.aborted, 'those in the line were evicted').toBe(true)
  first.goOn()
  expect(await waiting).toMatchObject({ state: 'published' })
  await Promise.allSettled([first.result, winner])
  expect(members.seen).toEqual(['waiting'])
})

test('one that stands in line again waits for no longer than it was told to', async () => {
  const { clock, of } = fleet(3)
  const members = new Members()
  const first = paused(of(0), members)
  await first.turn
  of(1).answerDelay = () => 60
  const winner = replace(of(1).locks, KEY, {}, members.upload([['winner']]))
  winner.catch(() => {})
  await turns()
  const waiting = replace(of(2).locks, KEY, { newest: 'waits', wait: '2s' }, members.upload([['waiting']]))
  waiting.catch(() => {})
  await turns(10)
  await clock.advance('1s')
  await turns(100)
  // It stands there again, for a second.
  await clock.advance('900ms')
  const early = await Promise.race([waiting.catch(() => 'refused'), turns().then(() => 'waits')])
  await clock.advance('200ms')
  await expect(waiting).rejects.toThrow(AcquireTimeoutError)
  expect(early).toBe('waits')
  first.goOn()
  await Promise.allSettled([first.result, winner])
})

test('the newest fails: at once, and the one that is going on is not disturbed', async () => {
  const { of } = fleet(2)
  const members = new Members()
  const first = paused(of(0), members)
  await first.turn
  const second = replace(of(1).locks, KEY, { newest: 'fails' }, members.upload([['second']]))
  await expect(second).rejects.toThrow(InProgressError)
  first.goOn()
  expect(await first.result).toMatchObject({ state: 'published' })
  expect(members.seen).toEqual(['old 1', 'old 2'])
})

describe('after a crash', () => {
  const file = [['a'], ['b'], ['c']]

  test('the next attempt of the upload goes on where the one before it has stopped', async () => {
    const locks = locksOn(memory())
    const members = new Members()
    const failing = members.upload(file, () => {
      if (members.rows.length === 2) throw new Error('killed')
    })
    await expect(replace(locks, KEY, { upload: 'u' }, failing)).rejects.toThrow('killed')
    expect(members.seen).toEqual([])
    // It can go on, so its rows stay.
    expect(await members.removeRetired({ locks })).toBe(2)
    let stored: number | undefined
    const again = await replace(locks, KEY, { upload: 'u' }, (turn) => {
      stored = turn.stored
      return members.upload(file)(turn)
    })
    expect(stored).toBe(2)
    expect(again).toMatchObject({ state: 'published', generation: 1 })
    expect(members.seen).toEqual(['a', 'b', 'c'])
  })

  test('an attempt of the same upload replaces one that is stopped, with the same generation', async () => {
    const { of } = fleet(2)
    const members = new Members()
    const stopped = paused(of(0), members, { upload: 'u' })
    const turn = await stopped.turn
    const again = replace(of(1).locks, KEY, { upload: 'u' }, members.upload([['old 1'], ['old 2']]))
    again.catch(() => {})
    await turns()
    stopped.goOn()
    await expect(stopped.result).rejects.toThrow(SupersededError)
    expect(await again).toMatchObject({ generation: turn.generation })
    expect(members.seen).toEqual(['old 1', 'old 2'])
  })

  test('an upload that was superseded meanwhile cannot go on', async () => {
    const locks = locksOn(memory())
    const members = new Members()
    const work = members.upload(file, () => Promise.reject(new Error('killed')))
    await expect(replace(locks, KEY, { upload: 'u' }, work)).rejects.toThrow('killed')
    await replace(locks, KEY, { upload: 'v' }, members.upload([['new']]))
    for (const newest of ['wins', 'waits', 'fails'] as const) {
      const again = replace(locks, KEY, { upload: 'u', newest }, members.upload(file))
      await expect(again).rejects.toMatchObject({ code: 'SUPERSEDED', by: { generation: 2, upload: 'v' } })
    }
    expect(members.seen).toEqual(['new'])
    expect(await members.removeRetired({ locks })).toBe(1)
  })

  test('an upload that is published already is answered, and not done again', async () => {
    const locks = locksOn(memory())
    const members = new Members()
    await replace(locks, KEY, { upload: 'u' }, members.upload(file))
    for (const newest of ['wins', 'waits', 'fails'] as const) {
      const again = await replace(locks, KEY, { upload: 'u', newest }, () => Promise.reject(new Error('never')))
      expect(again).toEqual({ state: 'already', generation: 1 })
    }
  })

  test('what was published before the work threw is published', async () => {
    const locks = locksOn(memory())
    const members = new Members()
    const late = await replace(locks, KEY, {}, async (turn) => {
      await members.upload(file)(turn)
      throw new Error('the connection broke')
    })
    expect(late).toEqual({ state: 'already', generation: 1 })
  })

  test('a failure to tell readers is no success: the caller gets it, though the upload is published', async () => {
    const locks = locksOn(memory())
    const failing = replace(locks, KEY, { upload: 'u' }, (turn) =>
      turn.publish(null, () => Promise.reject(new Error('the bucket is down'))),
    )
    await expect(failing).rejects.toThrow('the bucket is down')
    expect(await publishedUpload(locks, KEY)).toEqual({ generation: 1, upload: 'u' })
  })

  test('the work can tell readers again, unless they are on a newer list', async () => {
    const locks = locksOn(memory())
    const members = new Members()
    const told: number[] = []
    const twice = (between: () => unknown) =>
      replace(locks, KEY, {}, async (turn) => {
        const failing = turn.publish(null, () => Promise.reject(new Error('the bucket is down')))
        await expect(failing).rejects.toThrow('the bucket is down')
        await between()
        await turn.publish(null, (generation) => told.push(generation))
      })
    expect(await twice(() => {})).toMatchObject({ state: 'published', generation: 1 })
    let newer: Promise<unknown> | undefined
    const overtaken = twice(() => {
      newer = replace(locks, KEY, {}, members.upload([['newer']]))
      return turns()
    })
    await expect(overtaken).rejects.toThrow(SupersededError)
    await newer
    expect(told).toEqual([1])
  })

  test('an upload without an id is given up, and its rows are waste', async () => {
    const locks = locksOn(memory())
    const members = new Members()
    await expect(
      replace(
        locks,
        KEY,
        {},
        members.upload(file, () => Promise.reject(Error('no'))),
      ),
    ).rejects.toThrow('no')
    expect(await members.removeRetired({ locks })).toBe(0)
  })
})

test('the wait ends when its signal aborts, and the older one goes on to its end', async () => {
  const { of } = fleet(2)
  const members = new Members()
  const first = paused(of(0), members)
  await first.turn
  const controller = new AbortController()
  const options: ReplaceOptions = { newest: 'waits', signal: controller.signal }
  const second = replace(of(1).locks, KEY, options, members.upload([['second']]))
  second.catch(() => {})
  await turns()
  controller.abort(new Error('never mind'))
  await expect(second).rejects.toThrow('never mind')
  first.goOn()
  expect(await first.result).toMatchObject({ state: 'published' })
})
