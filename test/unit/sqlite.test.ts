/** The parts of the SQLite engine that need no file. */
import { describe, expect, test } from 'vitest'
import { isSafe } from '../../src/clients/sqlite/driver.ts'
import { asEngineError, codeOf } from '../../src/clients/sqlite/errors.ts'
import { isMountPoint, networkTypeOf } from '../../src/clients/sqlite/folder.ts'
import { hostClock } from '../../src/clients/sqlite/host.ts'
import { openSqlite, sqlite } from '../../src/engines/sqlite/index.ts'

test('a SQLite that several processes can corrupt is told from one they cannot', () => {
  const safe = ['3.51.3', '3.51.10', '3.52.0', '3.100.0', '4.0.0']
  const unsafe = ['3.51.2', '3.51', '3.45.1', '3.9.0', '2.99.99', 'unknown']
  expect(safe.filter(isSafe)).toEqual(safe)
  expect(unsafe.filter(isSafe)).toEqual([])
})

describe('network file systems are recognised by the mount they are on', () => {
  const mountinfo = `
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt/share rw shared:2 - nfs4 server:/export rw,vers=4.2
31 30 0:27 / /mnt/share/local rw shared:3 - tmpfs tmpfs rw
32 22 0:28 / /mnt/with\\040space rw - fuse.sshfs me@host: rw
33 22 0:29 / /mnt/mine rw - fuse.gocryptfs /secret rw
34 22 0:30 / /mnt/twice rw - cifs //host/share rw
35 22 0:31 / /mnt/twice rw - ext4 /dev/vdb rw`

  test.each([
    ['/var/lib', undefined],
    ['/mnt/share', 'nfs4'],
    ['/mnt/share/deep/in', 'nfs4'],
    ['/mnt/shared', undefined],
    ['/mnt/share/local/x', undefined],
    ['/mnt/with space/x', 'fuse.sshfs'],
    ['/mnt/mine', undefined],
    ['/mnt/twice', undefined],
  ])('%s: %s', (folder, type) => {
    expect(networkTypeOf(folder, mountinfo)).toBe(type)
  })

  test('and a file that is mounted alone by a mount of just its path', () => {
    expect(isMountPoint('/mnt/with space', mountinfo)).toBe(true)
    expect(isMountPoint('/mnt/with space/x', mountinfo)).toBe(false)
    expect(isMountPoint('/mnt', mountinfo)).toBe(false)
  })

  test('where there is no list of mounts, nothing is refused', () => {
    expect(networkTypeOf('/var', '')).toBeUndefined()
  })
})

describe('an error of SQLite', () => {
  test('is known by its code, however the driver spells it', () => {
    expect(codeOf(Object.assign(new Error('x'), { errcode: 261 }))).toBe(5)
    expect(codeOf(Object.assign(new Error('x'), { code: 'SQLITE_IOERR_WRITE' }))).toBe(10)
    expect(codeOf(new Error('database or disk is full'))).toBe(13)
    expect(codeOf(new Error('something else'))).toBeUndefined()
  })

  test('leaves the outcome open only when a commit failed in the disk itself', () => {
    const diskFailure = Object.assign(new Error('disk I/O error'), { errcode: 1034 })
    expect(asEngineError('enter', diskFailure, { file: 'f', during: 'commit' }).outcome).toBe('unknown')
    expect(asEngineError('enter', diskFailure, { file: 'f', during: 'work' }).outcome).toBe('not-applied')
    const full = Object.assign(new Error('full'), { errcode: 13 })
    expect(asEngineError('enter', full, { file: 'f', during: 'commit' }).outcome).toBe('not-applied')
  })
})

test('the host clock is the same for every clock made from it, and only goes forward', () => {
  const [one, other] = [hostClock(), hostClock()]
  let last = one.now()
  for (let index = 0; index < 1000; index += 1) {
    const now = (index % 2 === 0 ? other : one).now()
    expect(now).toBeGreaterThanOrEqual(last)
    last = now
  }
})

test("SQLite's name for a database in memory is no file", async () => {
  await expect(openSqlite('sqlite::memory:')).rejects.toThrow(/use the memory engine \(memory:\)/)
  expect(() => sqlite({ file: ':memory:' })).toThrow(TypeError)
})

test('options win over what a URL says', async () => {
  const open = openSqlite('sqlite:locks.db?durability=full', { durability: 'half' as 'full' })
  await expect(open).rejects.toThrow('got half')
})

test.each(['constructor', 'toString', '__proto__', 'colour'])('%s is no option of a URL', async (name) => {
  await expect(openSqlite(`sqlite:locks.db?${name}=1`)).rejects.toThrow(`unknown option '${name}' in a sqlite: URL`)
})
