/**
 * The harness itself, shown on real servers: what a test does to a server happens to it, and nothing is left behind,
 * not even by a test process that is killed with -9. That last one runs the compiled harness in a process of its own,
 * so `npm run build` comes first.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { findOwnPostgres } from './postgres.ts'
import { expand } from './programs.ts'
import { findOwnRedis, RedisServer } from './redis.ts'
import type { ServerProcess } from './servers.ts'
import { describeServer } from './suite.ts'
import { cacheFolder, reachable } from './user.ts'

/** Where /proc tells who and how a process is. */
const onLinux = process.platform === 'linux'

/** As in proc(5): `T` is stopped, `Z` is dead but not yet buried by its parent, which in a container may be never. */
function stateOf(pid: number): string | undefined {
  return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.[0]
}

function alive(pid: number): boolean {
  try {
    if (onLinux) return stateOf(pid) !== 'Z'
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

async function until(check: () => void): Promise<void> {
  await vi.waitFor(check, { timeout: 30_000, interval: 10 })
}

await describeServer('a server of our own', findOwnRedis, (source) => {
  let server: RedisServer
  let owned: ServerProcess

  async function start(options = {}): Promise<void> {
    server = await RedisServer.start(source, options)
    owned = server.process as ServerProcess
  }

  afterEach(() => server?.[Symbol.asyncDispose]())

  test('serves, asks for its password, and leaves neither process nor folder', async () => {
    await start({ password: 's p@ce' })
    const client = await server.connect()
    expect(await client.command('PING')).toBe('PONG')
    const { pid, folder } = owned
    await server[Symbol.asyncDispose]()
    expect(alive(pid)).toBe(false)
    expect(existsSync(folder)).toBe(false)
    await expect(client.command('PING')).rejects.toThrow()
  })

  test('does not run as root', async (context) => {
    if (!onLinux) return context.skip('needs /proc')
    await start()
    expect(statSync(`/proc/${owned.pid}`).uid).not.toBe(0)
  })

  test('killed and started again in the same folder, it has what it wrote to disk', async () => {
    await start({ durable: true })
    const before = await server.connect()
    await before.command('SET', 'kept', 'yes')
    const { pid } = owned
    await owned.kill()
    expect(alive(pid)).toBe(false)
    await expect(before.command('PING')).rejects.toThrow()
    await owned.start()
    await using after = await server.connect()
    expect(await after.command('GET', 'kept')).toBe('yes')
  })

  test('paused, it answers nothing until resumed; stopped while paused, it ends', async (context) => {
    if (!onLinux) return context.skip('needs /proc')
    await start()
    await using client = await server.connect()
    owned.pause()
    expect(stateOf(owned.pid)).toBe('T')
    let answered = false
    const pong = client.command('PING').then(() => {
      answered = true
    })
    await using other = await server.connect()
    expect(answered).toBe(false)
    owned.resume()
    await pong
    await other.command('PING')
    owned.pause()
    await owned.stop()
    expect(owned.running).toBe(false)
  })

  test('a server that cannot start says why', async () => {
    await start()
    await expect(RedisServer.start(source, { args: ['--no-such-option', '1'] })).rejects.toThrow(/no-such-option/)
  })

  test('a test process killed with -9 leaves neither server nor folder', async () => {
    await start()
    const compiled = new URL('../../dist/test/servers/redis.js', import.meta.url)
    expect(existsSync(compiled), 'npm run build makes dist/test/servers').toBe(true)
    const script = `
      const { findOwnRedis, RedisServer } = await import(${JSON.stringify(compiled.href)})
      const { process: server } = await RedisServer.start(await findOwnRedis())
      console.log(JSON.stringify({ pid: server.pid, folder: server.folder }))
      setInterval(() => {}, 1000)`
    const victim = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [line] = await once(victim.stdout, 'data')
    const { pid, folder } = JSON.parse(String(line))
    expect(alive(pid)).toBe(true)
    victim.kill('SIGKILL')
    await until(() => expect(alive(pid)).toBe(false))
    await until(() => expect(existsSync(folder)).toBe(false))
  })
})

await describeServer('a server of many processes', findOwnPostgres, () => {
  test('a test process killed with -9 leaves none of them, not even stopped ones', async (context) => {
    if (!onLinux) return context.skip('needs /proc')
    const compiled = new URL('../../dist/test/servers/postgres.js', import.meta.url)
    expect(existsSync(compiled), 'npm run build makes dist/test/servers').toBe(true)
    const script = `
      const { findOwnPostgres, PostgresServer } = await import(${JSON.stringify(compiled.href)})
      const server = await PostgresServer.start(await findOwnPostgres())
      const connection = await server.connect()
      const backend = await connection.value('SELECT pg_backend_pid()')
      server.process.pause()
      console.log(JSON.stringify({ pids: [server.process.pid, backend], folder: server.process.folder }))
      setInterval(() => {}, 1000)`
    const victim = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [line] = await once(victim.stdout, 'data')
    const { pids, folder } = JSON.parse(String(line)) as { pids: number[]; folder: string }
    for (const pid of pids) await until(() => expect(stateOf(pid)).toBe('T'))
    victim.kill('SIGKILL')
    for (const pid of pids) await until(() => expect(alive(pid)).toBe(false))
    await until(() => expect(existsSync(folder)).toBe(false))
  })
})

describe('where servers are looked for and kept', () => {
  test('a star stands for every version, the newest first', () => {
    expect(expand('/no/star')).toEqual(['/no/star'])
    expect(expand('/no/such/folder/*/bin')).toEqual([])
    const here = new URL('../', import.meta.url).pathname
    expect(expand(`${here}*/x`)).toContain(`${here}servers/x`)
  })

  test('without a home the cache is in a temporary folder, and the servers can reach it', () => {
    const folder = cacheFolder({ HOME: '/nonexistent', XDG_CACHE_HOME: '/dev/null/nothing' })
    expect(existsSync(folder)).toBe(true)
    expect(process.getuid?.() === 0 ? reachable(folder) : true).toBe(true)
  })
})
