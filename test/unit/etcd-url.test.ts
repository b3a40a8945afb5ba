/** What an etcd URL says, and that a wrong one is explained without its password. */
import { describe, expect, test } from 'vitest'
import { parseEtcdUrl } from '../../src/clients/etcd/url.ts'
import { versionFinding } from '../../src/engines/etcd/diagnose.ts'
import { etcd } from '../../src/engines/etcd/index.ts'
import { EtcdNames } from '../../src/engines/etcd/names.ts'

describe('an etcd URL', () => {
  test('names one member or several, with the usual port unless another is given', () => {
    expect(parseEtcdUrl('etcd://h1')).toEqual({ hosts: [{ host: 'h1', port: 2379 }], tls: false })
    expect(parseEtcdUrl('etcd://h1:1,h2,[::1]:3/').hosts).toEqual([
      { host: 'h1', port: 1 },
      { host: 'h2', port: 2379 },
      { host: '::1', port: 3 },
    ])
    expect(parseEtcdUrl('etcd://').hosts).toEqual([{ host: '127.0.0.1', port: 2379 }])
  })

  test('has a user, and options, percent-encoded', () => {
    expect(parseEtcdUrl('etcd://a%40b:p%3Aw%2F@h?prefix=app%2F&tls=true').user).toEqual({
      name: 'a@b',
      password: 'p:w/',
    })
    expect(parseEtcdUrl('etcd://h?prefix=app%2F').prefix).toBe('app/')
    expect(parseEtcdUrl('etcd://h?ca=ca.pem')).toMatchObject({ tls: true, ca: 'ca.pem' })
    expect(parseEtcdUrl('etcd://h?tls=true&cert=c.pem&key=k.pem')).toMatchObject({
      tls: true,
      cert: 'c.pem',
      key: 'k.pem',
    })
  })

  test.each([
    ['etcd:h1', /an etcd URL is/],
    ['etcd://user@h1', /a name and a password/],
    ['etcd://h1:x', /host:port/],
    ['etcd://h1?colour=red', /unknown option 'colour'/],
    ['etcd://h1?tls=perhaps', /tls is true or false/],
    ['etcd://user:se@cret@h1', /percent-encoded/],
    ['etcd://user:%zz@h1', /percent-encoded/],
  ])('%s is refused', (url, why) => {
    expect(() => parseEtcdUrl(url)).toThrow(why)
    expect(() => parseEtcdUrl(url)).not.toThrow(/cret/)
  })

  test('what cannot be is refused when the engine is made', () => {
    expect(() => etcd({ endpoints: [] })).toThrow(/at least one/)
    expect(() => etcd({ endpoints: [{ host: 'h', port: 1 }], prefix: '' })).toThrow(/prefix/)
  })
})

describe('names in etcd', () => {
  const names = new EtcdNames('holdfast/')

  test.each(['a', 'a/b', 'a%2Fb', '%', '%25', '/', 'á', '\u{1F512}', '0', 'a0'])(
    'the key %j comes back from its name',
    (key) => {
      expect(names.parse(names.entry(key, 'id'))).toEqual({ key, name: 'id' })
    },
  )

  test('no line is a part of another', () => {
    const keys = ['a', 'a/', 'a/b', 'a0', 'a%2F', 'a%2Fb', 'a.', 'ab']
    for (const key of keys) {
      const { key: from, end } = names.line(key)
      const inside = keys.filter((other) => {
        const entry = names.entry(other, 'ffff')
        return (
          Buffer.compare(Buffer.from(entry), Buffer.from(from)) >= 0 &&
          Buffer.compare(Buffer.from(entry), Buffer.from(end)) < 0
        )
      })
      expect(inside).toEqual([key])
    }
  })
})

test.each([
  ['3.3.27', 'fail'],
  ['3.4.23', 'warn'],
  ['3.4.31', 'ok'],
  ['3.5.9', 'warn'],
  ['3.5.13', 'ok'],
  ['3.6.0', 'ok'],
  ['4.0.0', 'ok'],
])('version %s is found to be: %s', (version, status) => {
  expect(versionFinding(version).status).toBe(status)
})
