/**
 * Where other users can write, they can lay something out: links, FIFOs, folders of their own. Nothing of the kind is
 * followed, waited for or believed, whether it lies in the place of the database, of what SQLite keeps beside it, or of
 * a wake file. What would hang without that runs in a process of its own.
 */
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, type TestContext, test, vi } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import { type SqliteOptions, sqlite } from '../../src/engines/sqlite/index.ts'
import { WakeFiles } from '../../src/engines/sqlite/listen.ts'
import { claim } from './sqlite.process.ts'
import { children, file, folder, open } from './sqlite-world.ts'

const STRANGER = 65534
const SECRET = 'sixteen secrets!'

let wake: string
let victim: string

beforeEach(() => {
  wake = `${file}-wake`
  victim = join(folder, 'victim')
  writeFileSync(victim, SECRET, { mode: 0o600 })
})

/** A database that all users may use, in a folder that all may write, as it is when users share one. */
async function shared(): Promise<void> {
  const engine = sqlite({ file })
  await engine.inspect('k')
  await engine[Symbol.asyncDispose]()
  chmodSync(file, 0o666)
  chmodSync(folder, 0o777)
}

function isRoot(context: TestContext): boolean {
  if (process.getuid?.() === 0) return true
  context.skip('only root can make what belongs to another user')
  return false
}

function fifo(path: string): void {
  execFileSync('mkfifo', ['-m', '666', path])
}

function expectVictimUntouched(): void {
  expect(readFileSync(victim, 'utf8')).toBe(SECRET)
  expect(statSync(victim).mode & 0o777).toBe(0o600)
}

async function refusalOf(call: Promise<unknown>): Promise<string> {
  const error: unknown = await call.then(
    () => undefined,
    (reason) => reason,
  )
  expect(error).toBeInstanceOf(EngineError)
  expect(error).toMatchObject({ outcome: 'not-applied', transient: false })
  return (error as EngineError).message
}

/** As above, in a process of its own. */
async function refusalElsewhere(options: SqliteOptions, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const child = await children.start(options, [], env)
  const error = await child.enter(claim('k')).catch((reason) => reason)
  expect(error).toMatchObject({ kind: 'EngineError', outcome: 'not-applied', transient: false })
  return error.message
}

describe('in the place of a wake file', () => {
  const plants: readonly [string, (path: string) => void][] = [
    ['a symbolic link', (path) => symlinkSync(victim, path)],
    ['a hard link', (path) => linkSync(victim, path)],
    ['a FIFO', fifo],
  ]

  test.each(plants)('%s is replaced by the engine whose file it should be', async (_, plant) => {
    await shared()
    mkdirSync(wake, { recursive: true })
    chmodSync(wake, 0o777)
    plant(join(wake, '7'))
    const heard: number[] = []
    const [one, other] = [new WakeFiles(file, (token) => heard.push(token)), new WakeFiles(file, () => {})]
    one.listen(7)
    other.wake(new Map([[7, 42]]))
    await vi.waitFor(() => expect(heard).toContain(42), { timeout: 10_000, interval: 5 })
    one.close()
    other.close()
    expectVictimUntouched()
  })

  test.each(plants)('%s is not written to, nor waited for', async (_, plant) => {
    await shared()
    const [holder, waiter] = [await children.start({ file }), await children.start({ file })]
    const [held, waiting] = [claim('k'), claim('k')]
    await holder.enter(held)
    await waiter.enter(waiting)
    const names = readdirSync(wake)
    expect(names.length).toBeGreaterThan(0)
    for (const name of names) {
      rmSync(join(wake, name))
      plant(join(wake, name))
    }
    expect(await holder.ask('leave', [held])).toEqual([true])
    // Not woken, it looks by itself.
    await waiter.heardHeld(waiting.id)
    expectVictimUntouched()
  })

  test('what another user of the machine has put there is not written to, unless it may use the database', async (context) => {
    if (!isRoot(context)) return
    const engine = open()
    const [held, waiting] = [claim('k'), claim('k')]
    await engine.enter([held])
    const waiter = await children.start({ file })
    await waiter.enter(waiting)
    const theirs = Buffer.alloc(16)
    for (const name of readdirSync(wake)) {
      writeFileSync(join(wake, name), theirs)
      chownSync(join(wake, name), STRANGER, STRANGER)
    }
    await engine.leave([held])
    await waiter.heardHeld(waiting.id)
    for (const name of readdirSync(wake)) expect(readFileSync(join(wake, name))).toEqual(theirs)
  })
})

describe('in the place of the folder of wake files', () => {
  test('a link, and a file', async () => {
    const elsewhere = join(folder, 'elsewhere')
    mkdirSync(elsewhere, { mode: 0o755 })
    symlinkSync(elsewhere, wake)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(`'${wake}' is not a folder`)
    expect(readdirSync(elsewhere)).toEqual([])
    rmSync(wake)
    writeFileSync(wake, '')
    expect(await refusalOf(open().enter([claim('k')]))).toContain(`remove it (rm -r '${wake}')`)
  })

  test('the folder of another user', async (context) => {
    if (!isRoot(context)) return
    mkdirSync(wake)
    chownSync(wake, STRANGER, STRANGER)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(`'${wake}' belongs to user ${STRANGER}`)
    expect(statSync(wake).uid).toBe(STRANGER)
  })

  test('a folder of our own that others can write is made as narrow as the database', async () => {
    mkdirSync(wake)
    chmodSync(wake, 0o777)
    await open().enter([claim('k')])
    expect(statSync(wake).mode & 0o022).toBe(statSync(file).mode & 0o022)
  })

  test('one that is there before any process waits, so that no stranger can make it', async () => {
    await open().inspect('k')
    expect(existsSync(wake)).toBe(true)
  })
})

describe('beside the database', () => {
  const parts = ['-wal', '-shm', '-journal']

  test.each(parts)('a FIFO, a link or a second name at %s is refused', async (part) => {
    const path = file + part
    fifo(path)
    expect(await refusalElsewhere({ file })).toContain(`'${path}' is not a regular file`)
    rmSync(path)
    symlinkSync(victim, path)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(path)
    rmSync(path)
    linkSync(victim, path)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(path)
    expectVictimUntouched()
  })

  test.for(parts)('%s of another user is refused, unless the database is shared', async (part, context) => {
    if (!isRoot(context)) return
    const engine = sqlite({ file })
    await engine.inspect('k')
    await engine[Symbol.asyncDispose]()
    for (const end of parts) rmSync(file + end, { force: true })
    writeFileSync(file + part, '')
    chownSync(file + part, STRANGER, STRANGER)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(`'${file + part}' belongs to user ${STRANGER}`)
    chmodSync(file, 0o666)
    expect(await open().enter([claim('k')])).toMatchObject([{ state: 'held' }])
  })
})

describe('in a folder that all users may write, whose files get its group', () => {
  /** For a database of a group; files of any user have that group there. */
  const GROUP = 54321

  async function ofGroup(folderMode: number): Promise<void> {
    const engine = sqlite({ file })
    await engine.inspect('k')
    await engine[Symbol.asyncDispose]()
    rmSync(wake, { recursive: true })
    for (const path of [file, folder]) chownSync(path, 0, GROUP)
    chmodSync(file, 0o660)
    chmodSync(folder, folderMode)
  }

  test('the group of what lies there does not show that its maker may write the database', async (context) => {
    if (!isRoot(context)) return
    await ofGroup(0o3777)
    const wal = `${file}-wal`
    writeFileSync(wal, '')
    chownSync(wal, STRANGER, GROUP)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(`'${wal}' belongs to user ${STRANGER}`)
    rmSync(wal)
    mkdirSync(wake)
    chownSync(wake, STRANGER, GROUP)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(`'${wake}' belongs to user ${STRANGER}`)
  })

  test('where only the group may write, it does', async (context) => {
    if (!isRoot(context)) return
    await ofGroup(0o2775)
    const wal = `${file}-wal`
    writeFileSync(wal, '')
    chownSync(wal, STRANGER, GROUP)
    expect(await open().enter([claim('k')])).toMatchObject([{ state: 'held' }])
  })
})

describe('in the place of the database', () => {
  test('a link of another user is refused, and what it leads to is not made', async (context) => {
    if (!isRoot(context)) return
    const elsewhere = join(folder, 'elsewhere')
    symlinkSync(elsewhere, file)
    lchownSync(file, STRANGER, STRANGER)
    expect(await refusalOf(open().enter([claim('k')]))).toContain(`'${file}' is a symbolic link of user ${STRANGER}`)
    expect(existsSync(elsewhere)).toBe(false)
  })

  test('a link of our own is another name of the same locks, wake-ups included', async () => {
    const name = join(folder, 'name.db')
    symlinkSync('locks.db', name)
    const [one, other] = [open(), open({ file: name })]
    expect(other.file).toBe(file)
    const [held, waiting] = [claim('k'), claim('k')]
    await one.enter([held])
    const heard = new Promise((resolve) => void other.subscribe(resolve))
    expect(await other.enter([waiting])).toMatchObject([{ state: 'waiting' }])
    await one.leave([held])
    expect(await heard).toMatchObject({ id: waiting.id, standing: { state: 'held' } })
  })

  test('a FIFO is refused', async () => {
    fifo(file)
    expect(await refusalElsewhere({ file })).toContain(`'${file}' is not a regular file`)
  })

  test('the default folder of another user is refused', async (context) => {
    if (!isRoot(context)) return
    const state = join(folder, 'state')
    mkdirSync(join(state, 'holdfast'), { recursive: true })
    chownSync(join(state, 'holdfast'), STRANGER, STRANGER)
    expect(await refusalElsewhere({}, { XDG_STATE_HOME: state })).toContain(`belongs to user ${STRANGER}`)
  })
})

describe('two users', () => {
  test('share a database, and wake each other', async (context) => {
    if (!isRoot(context)) return
    await shared()
    const [root, other] = [await children.start({ file }), await children.start({ file: join(folder, 'warm.db') })]
    await other.enter(claim('warm'))
    await other.ask('drop', STRANGER)
    await other.open({ file })
    const [one, two, three] = [claim('k'), claim('k'), claim('k')]
    await root.enter(one)
    await other.enter(two)
    await root.enter(three)
    expect(readdirSync(wake).map((name) => statSync(join(wake, name)).mode & 0o777)).toEqual([0o666, 0o666])
    await root.ask('leave', [one])
    await other.heardHeld(two.id)
    await other.ask('leave', [two])
    await root.heardHeld(three.id)
  })

  test('what root makes beside the database of another user belongs to that user', async (context) => {
    if (!isRoot(context)) return
    writeFileSync(file, '', { mode: 0o600 })
    for (const path of [folder, file]) chownSync(path, STRANGER, STRANGER)
    const engine = open()
    await engine.enter([claim('k'), claim('k')])
    const [name] = readdirSync(wake)
    for (const path of [wake, join(wake, name as string)]) expect(statSync(path).uid).toBe(STRANGER)
    expect(statSync(wake).mode & 0o777).toBe(0o700)
  })
})
