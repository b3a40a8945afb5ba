/**
 * What can be wrong with a file, a folder and a disk: a clear error that names the file and says what to do, nothing
 * lost, no lock wrongly granted.
 */
import {
  chmodSync,
  closeSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type Database, loadDriver } from '../../src/clients/sqlite/driver.ts'
import type { Line } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import { defaultFile, type SqliteEngine, sqlite } from '../../src/engines/sqlite/index.ts'
import { type Child, ChildError, claim, whyNot } from './sqlite.process.ts'
import { children, file, folder, open } from './sqlite-world.ts'

/**
 * A connection of our own, of the same SQLite as the engine's: two copies of it in one process would undo each other's
 * file locks.
 */
async function database(name = file): Promise<Database & { function(name: string, body: () => unknown): void }> {
  return (await loadDriver()).open(name) as Awaited<ReturnType<typeof database>>
}

/** Change the file behind the engine's back. */
async function sql(statement: string): Promise<void> {
  const own = await database()
  own.exec(statement)
  own.close()
}

const refused = (call: Promise<unknown>): Promise<string | undefined> =>
  call.then(
    () => undefined,
    (error: Error) => error.message,
  )

async function refusalOf(engine: SqliteEngine): Promise<EngineError> {
  const error: unknown = await engine.enter([claim('k')]).then(
    () => undefined,
    (reason) => reason,
  )
  expect(error).toBeInstanceOf(EngineError)
  return error as EngineError
}

describe('a place that cannot be used is refused in words', () => {
  test('a directory', async () => {
    const error = await refusalOf(open({ file: folder }))
    expect(error.message).toContain(`'${folder}' is a directory`)
    expect(error).toMatchObject({ outcome: 'not-applied', transient: false })
  })

  test('a folder that is missing, which is rather a typing error, and is not made', async () => {
    const error = await refusalOf(open({ file: join(folder, 'a', 'locks.db') }))
    expect(error.message).toContain(`does not exist: if the path is right, make it (mkdir -p '${join(folder, 'a')}')`)
    expect(error).toMatchObject({ outcome: 'not-applied', transient: false })
    expect(readdirSync(folder)).toEqual([])
  })

  test('a folder that is a file', async () => {
    writeFileSync(join(folder, 'a'), '')
    const error = await refusalOf(open({ file: join(folder, 'a', 'locks.db') }))
    expect(error.message).toContain(`'${join(folder, 'a')}', in the path of '${join(folder, 'a', 'locks.db')}', is not`)
    expect(error.transient).toBe(false)
  })

  test('a default folder that cannot be made, because a file is in its place', async () => {
    const child = await children.start({}, [], { XDG_STATE_HOME: folder })
    writeFileSync(join(folder, 'holdfast'), '')
    await expect(child.enter(claim('k'))).rejects.toThrow(
      /cannot make the folder of '.*locks\.db' \((EEXIST|ENOTDIR)\)/,
    )
  })

  test('a file with two names, because each name would have a log of its own', async () => {
    await open().enter([claim('k')])
    linkSync(file, join(folder, 'other.db'))
    for (const name of [file, join(folder, 'other.db')]) {
      const error = await refusalOf(open({ file: name }))
      expect(error.message).toContain(`'${name}' has 2 names (hard links)`)
      expect(error).toMatchObject({ outcome: 'not-applied', transient: false })
    }
    rmSync(join(folder, 'other.db'))
    expect(await open().enter([claim('k', { wait: false })])).toEqual([{ state: 'busy', ahead: 1 }])
  })

  test('a file that is mounted alone, as into a container, because its log stays outside', async (context) => {
    const inside = join(folder, 'inside.db')
    writeFileSync(inside, '')
    await open().enter([claim('k')])
    const wrapper = ['unshare', '--mount', 'sh', '-c', `mount --bind '${file}' '${inside}' && exec "$@"`, 'sh']
    const reason = whyNot(wrapper[0] as string, ...wrapper.slice(1), 'true')
    if (reason !== undefined) return context.skip(reason)
    const child = await children.start({ file: inside }, wrapper)
    const error = await child.enter(claim('k')).catch((thrown) => thrown)
    expect(error.message).toContain(`'${inside}' is mounted here as a single file, without the log beside it`)
    expect(error).toMatchObject({ kind: 'EngineError', outcome: 'not-applied', transient: false })
  })

  test('a folder that may not be written, and a file that may not be read', async () => {
    const child = await unprivileged()
    mkdirSync(join(folder, 'shut'))
    chmodSync(join(folder, 'shut'), 0o555)
    const shut = join(folder, 'shut', 'locks.db')
    await child.ask('open', { file: shut })
    const error = await child.enter(claim('k')).catch((reason) => reason)
    expect(error).toBeInstanceOf(ChildError)
    expect(error.message).toContain(
      `'${shut}' cannot be used (EACCES): give this user read and write permission to its folder`,
    )
    expect(error).toMatchObject({ kind: 'EngineError', outcome: 'not-applied', transient: false })

    writeFileSync(file, '')
    chmodSync(file, 0)
    chmodSync(folder, 0o777)
    await child.ask('open', { file })
    await expect(child.enter(claim('k'))).rejects.toThrow(
      /cannot be used \(EACCES\): give this user read and write permission to it,/,
    )
  })

  test('a file that is no database', async () => {
    writeFileSync(file, 'dear diary, '.repeat(1000))
    const error = await refusalOf(open())
    expect(error.message).toContain(`'${file}' is damaged or is no SQLite database`)
    expect(error).toMatchObject({ outcome: 'not-applied', transient: false })
  })

  test('a database whose pages are damaged', async () => {
    const before = open()
    await before.enter(Array.from({ length: 200 }, (_, index) => claim(`k${index}`)))
    await before[Symbol.asyncDispose]()
    await sql('pragma wal_checkpoint(truncate)')
    const healthy = statSync(file).size
    // Every page but the first, so that it opens.
    const descriptor = openSync(file, 'r+')
    writeSync(descriptor, Buffer.alloc(healthy - 4096, 0xaa), 0, healthy - 4096, 4096)
    closeSync(descriptor)
    const error = await refusalOf(open())
    expect(error.message).toContain(`'${file}' is damaged`)
    expect(error).toMatchObject({ outcome: 'not-applied', transient: false })
  })

  test('a file of a newer version, which is left as it is', async () => {
    await open().enter([claim('k')])
    await sql('update holdfast_file set format = 2')
    const error = await refusalOf(open())
    expect(error.message).toContain(`'${file}' was written by a newer Holdfast (format 2; this one knows 1)`)
    expect(error.transient).toBe(false)
  })
})

describe('a database that the user brings', () => {
  test('serves locks, beside other processes that open the file by name', async () => {
    const mine = await database()
    const [brought, named] = [open({ database: mine }), open()]
    expect(await brought.enter([claim('k')])).toMatchObject([{ state: 'held' }])
    expect(await named.enter([claim('k', { wait: false })])).toEqual([{ state: 'busy', ahead: 1 }])
    await brought[Symbol.asyncDispose]()
    expect(mine.prepare('select count(*) as count from holdfast_entry').all()).toEqual([{ count: 1 }])
    mine.close()
  })

  test('is refused when its file was replaced, because it still has the old one', async () => {
    const mine = await database()
    const brought = open({ database: mine })
    await brought.enter([claim('k')])
    for (const part of ['', '-wal', '-shm']) rmSync(file + part)
    await open().enter([claim('k')])
    await expect
      .poll(() => refused(brought.renew([claim('k')])))
      .toMatch(/was deleted or replaced: open the database anew/)
    expect((await refusalOf(brought)).transient).toBe(false)
    mine.close()
  })

  test('is refused in memory, and with a SQLite that several processes can corrupt', async () => {
    const inMemory = await database(':memory:')
    expect(() => sqlite({ database: inMemory })).toThrow(/in memory, where no other process can see it/)
    const old = await database()
    old.function('sqlite_version', () => '3.50.4')
    const error = await refusalOf(open({ database: old }))
    expect(error.message).toMatch(/brings SQLite 3\.50\.4, and one before 3\.51\.3 can corrupt a file/)
    expect(error).toMatchObject({ outcome: 'not-applied', transient: false })
    old.close()
  })
})

describe('a transaction', () => {
  test('is not begun for a call that was given up before', async () => {
    for (const engine of [open(), open()]) {
      await expect(engine.enter([claim('k')], AbortSignal.abort())).rejects.toMatchObject({ outcome: 'not-applied' })
      expect((await engine.inspect('k')).entries).toEqual([])
      // And again, with the file open.
      await expect(engine.enter([claim('k')], AbortSignal.abort())).rejects.toMatchObject({ outcome: 'not-applied' })
    }
  })

  test('that fails takes the wake file with it: its number may be the next one of another process', async () => {
    const [holder, waiter] = [open(), open()]
    await holder.enter([claim('k')])
    await sql("create trigger spoil before insert on holdfast_line begin select raise(abort, 'spoilt'); end")
    await expect(waiter.enter([claim('k')])).rejects.toBeInstanceOf(EngineError)
    expect(readdirSync(`${file}-wake`)).toEqual([])
    await sql('drop trigger spoil')
    expect(await waiter.enter([claim('k')])).toMatchObject([{ state: 'waiting' }])
    expect(readdirSync(`${file}-wake`)).toHaveLength(1)
  })
})

describe('a disk without room', () => {
  test('grants nothing that is not stored, says so, and goes on when there is room again', async (context) => {
    const wrapper = [
      'unshare',
      '--mount',
      'sh',
      '-c',
      `mount -t tmpfs -o size=600k tmpfs '${folder}' && exec "$@"`,
      'sh',
    ]
    const reason = whyNot(wrapper[0] as string, ...wrapper.slice(1), 'true')
    if (reason !== undefined) return context.skip(reason)
    const child = await children.start({ file }, wrapper)
    await child.ask('reserve', join(folder, 'rubbish'), 200_000)
    const { error, granted } = await enterUntilRefused(child)
    expect(error.message).toContain(`'${file}' cannot grow: the disk is full`)
    expect(error).toMatchObject({ kind: 'EngineError', outcome: 'not-applied', transient: true })
    await child.ask('remove', join(folder, 'rubbish'))
    for (const key of granted.keys())
      expect((await child.ask<Line>('inspect', key)).entries).toMatchObject([{ token: granted.get(key) }])
    expect((await child.ask<Line>('inspect', `k${granted.size}`)).entries).toEqual([])
    const last = [...granted.values()].at(-1) as bigint
    const after = await child.enter(claim('after'))
    expect((after as { token: bigint }).token).toBeGreaterThan(last)
  })

  test('the same when the user may not make larger files', async () => {
    const child = await children.start({ file }, ['sh', '-c', 'ulimit -f 400 && exec "$@"', 'sh'])
    const { error, granted } = await enterUntilRefused(child)
    expect(error.message).toContain(`'${file}' could not be read or written (disk I/O error)`)
    expect(error.transient).toBe(true)
    const engine = open()
    for (const [key, token] of granted) expect((await engine.inspect(key)).entries).toMatchObject([{ token }])
  })

  /** What was granted before the refusal, by key. */
  async function enterUntilRefused(child: Child): Promise<{ error: ChildError; granted: Map<string, bigint> }> {
    const granted = new Map<string, bigint>()
    for (;;) {
      const key = `k${granted.size}`
      try {
        const standing = await child.enter(claim(key, { holder: 'h'.repeat(500) }))
        granted.set(key, (standing as { token: bigint }).token)
      } catch (error) {
        return { error: error as ChildError, granted }
      }
    }
  }
})

describe('the default file', () => {
  test('gets its folder made, for its user alone', async () => {
    const child = await children.start({}, [], { XDG_STATE_HOME: join(folder, 'state') })
    expect(await child.enter(claim('k'))).toMatchObject({ state: 'held' })
    for (const made of ['state', join('state', 'holdfast')])
      expect(statSync(join(folder, made)).mode & 0o777).toBe(0o700)
  })

  test('is in the folder for state', () => {
    expect(defaultFile({ XDG_STATE_HOME: '/var/state', HOME: '/var/me' })).toBe('/var/state/holdfast/locks.db')
    expect(defaultFile({ XDG_STATE_HOME: 'not/absolute', HOME: '/var/me' })).toBe(
      '/var/me/.local/state/holdfast/locks.db',
    )
  })

  test('is refused to a user who has no such folder', async (context) => {
    if (process.getuid?.() !== 0) return context.skip('only root can become a user that the system does not know')
    const child = await children.start({ file }, ['env', '-u', 'HOME', '-u', 'XDG_STATE_HOME'])
    expect(await child.ask('defaultFile')).toMatch(/\/holdfast\/locks\.db$/)
    await child.ask('drop', 54321)
    await expect(child.ask('defaultFile')).rejects.toThrow(/neither XDG_STATE_HOME nor HOME names a folder/)
  })
})

/** A process without the rights of root; if we have none ourselves, every process is one. */
async function unprivileged(): Promise<Child> {
  const child = await children.start({ file: join(folder, 'other.db') })
  await child.enter(claim('k'))
  chmodSync(folder, 0o755)
  if (process.getuid?.() === 0) await child.ask('drop', 65534)
  return child
}
