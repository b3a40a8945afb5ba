/** Paths and URLs of SQLite files on each system, tried on whichever system runs the tests. */
import { describe, expect, test } from 'vitest'
import { isShare, pathOfUrl, stateFolder } from '../../src/clients/sqlite/places.ts'

const unknown = (): undefined => undefined

describe('the state of a user is kept', () => {
  test.each([
    ['linux', { HOME: '/home/me' }, '/home/me/.local/state'],
    ['linux', { HOME: '/home/me', XDG_STATE_HOME: '/var/state' }, '/var/state'],
    ['linux', { HOME: '/home/me', XDG_STATE_HOME: 'not/absolute' }, '/home/me/.local/state'],
    ['linux', {}, undefined],
    ['freebsd', { HOME: '/home/me' }, '/home/me/.local/state'],
    ['darwin', { HOME: '/people/me' }, '/people/me/Library/Application Support'],
    ['darwin', { HOME: '/people/me', XDG_STATE_HOME: '/var/state' }, '/var/state'],
    ['win32', { LOCALAPPDATA: 'D:\\Data', USERPROFILE: 'C:\\Users\\me' }, 'D:\\Data'],
    ['win32', { USERPROFILE: 'C:\\Users\\me' }, 'C:\\Users\\me\\AppData\\Local'],
    // A shell that comes from elsewhere may set HOME as well. Services of Windows do not have it.
    ['win32', { HOME: '/home/me', USERPROFILE: 'C:\\Users\\me' }, 'C:\\Users\\me\\AppData\\Local'],
    ['win32', { XDG_STATE_HOME: 'C:\\state' }, 'C:\\state'],
  ] as const)('on %s with %j: in %s', (platform, env, folder) => {
    expect(stateFolder(env, platform, unknown)).toBe(folder)
  })

  test('below the home that the system knows, if no variable names one', () => {
    expect(stateFolder({}, 'linux', () => '/home/me')).toBe('/home/me/.local/state')
    expect(stateFolder({ HOME: '' }, 'darwin', () => '/people/me')).toBe('/people/me/Library/Application Support')
    expect(stateFolder({}, 'win32', () => 'C:\\Users\\me')).toBe('C:\\Users\\me\\AppData\\Local')
    expect(stateFolder({}, 'linux', () => '')).toBeUndefined()
  })
})

describe('the path in a URL', () => {
  test.each([
    ['C:\\locks\\a.db', 'C:\\locks\\a.db'],
    ['C:/locks/a.db', 'C:/locks/a.db'],
    ['/C:/locks/a.db', 'C:/locks/a.db'],
    ['///C:/locks/a.db', 'C:/locks/a.db'],
    ['///c:\\locks\\a.db', 'c:\\locks\\a.db'],
    ['//localhost/C:/locks/a.db', 'C:/locks/a.db'],
    ['///C:/with%20space/a.db', 'C:/with space/a.db'],
    ['locks.db', 'locks.db'],
    ['..\\locks.db', '..\\locks.db'],
    ['\\\\host\\share\\a.db', '\\\\host\\share\\a.db'],
  ])('on Windows, of sqlite:%s is %s', (url, path) => {
    expect(pathOfUrl(url, 'win32')).toBe(path)
  })

  test.each([
    ['/var/a.db', '/var/a.db'],
    ['///var/a.db', '/var/a.db'],
    ['a.db', 'a.db'],
    // A strange name, and an allowed one.
    ['///C:/a.db', '/C:/a.db'],
    ['100%.db', '100%.db'],
  ])('elsewhere, of sqlite:%s is %s', (url, path) => {
    expect(pathOfUrl(url, 'linux')).toBe(path)
  })

  test('a host is refused, also if it is a drive with a slash too few', () => {
    expect(() => pathOfUrl('//C:/locks/a.db', 'win32')).toThrow('write sqlite:C:/locks/a.db')
    expect(() => pathOfUrl('//name/a.db', 'linux')).toThrow('names a host')
  })
})

test.each([
  ['\\\\host\\share\\locks', true],
  ['//host/share', true],
  ['\\\\?\\UNC\\host\\share', true],
  ['\\\\?\\C:\\locks', false],
  ['\\\\.\\C:\\locks', false],
  ['C:\\locks', false],
  ['\\locks', false],
])('%s is on another host: %s', (path, is) => {
  expect(isShare(path)).toBe(is)
})
