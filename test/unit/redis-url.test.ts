/** What a redis URL says, and what it must not say. */
import { expect, test } from 'vitest'
import { parseUrl } from '../../src/clients/redis/url.ts'

test.each([
  ['redis://', { kind: 'server', hosts: [{ host: '127.0.0.1', port: 6379 }], db: 0, tls: false }],
  ['redis://db.example:7000/3', { kind: 'server', hosts: [{ host: 'db.example', port: 7000 }], db: 3, tls: false }],
  ['REDISS://db.example', { kind: 'server', hosts: [{ host: 'db.example', port: 6379 }], db: 0, tls: true }],
  ['redis://[::1]:7000', { kind: 'server', hosts: [{ host: '::1', port: 7000 }], db: 0, tls: false }],
  [
    'redis://:p%40ss%3Aword@h',
    { kind: 'server', hosts: [{ host: 'h', port: 6379 }], password: 'p@ss:word', db: 0, tls: false },
  ],
  [
    'redis://u:a:b@h/0',
    { kind: 'server', hosts: [{ host: 'h', port: 6379 }], username: 'u', password: 'a:b', db: 0, tls: false },
  ],
  [
    'redis://h?prefix=&tls=true&ca=%2Fa',
    { kind: 'server', hosts: [{ host: 'h', port: 6379 }], prefix: '', ca: '/a', db: 0, tls: true },
  ],
  ['redis://h?replicas=2', { kind: 'server', hosts: [{ host: 'h', port: 6379 }], replicas: 2, db: 0, tls: false }],
  [
    'redis-sentinel://:pw@a,b:1/my%20master/2?sentinelPassword=s',
    {
      kind: 'sentinel',
      hosts: [
        { host: 'a', port: 26379 },
        { host: 'b', port: 1 },
      ],
      password: 'pw',
      sentinelPassword: 's',
      name: 'my master',
      db: 2,
      tls: false,
    },
  ],
  [
    'redis-cluster://a:1,b',
    {
      kind: 'cluster',
      hosts: [
        { host: 'a', port: 1 },
        { host: 'b', port: 6379 },
      ],
      db: 0,
      tls: false,
    },
  ],
])('%s', (url, target) => {
  expect(parseUrl(url)).toEqual(target)
})

test.each([
  ['redis:host', /redis:\/\/user:password@host/],
  ['redis://a,b', /one host/],
  ['redis://h/zero', /database in a redis URL is a number; got 'zero'/],
  ['redis://h:port', /host:port; got 'h:port'/],
  ['redis-cluster://h/1', /only the database 0/],
  ['redis-sentinel://h', /names the master/],
  ['redis://h?ttl=3', /unknown option 'ttl' in a redis URL; known: prefix/],
  ['redis://h?tls=maybe', /true or false; got 'maybe'/],
  ['redis://:100%@h', /percent-encoded/],
  ['redis://h?prefix=a@b', /percent-encoded/],
])('%s is refused, with the reason', (url, message) => {
  expect(() => parseUrl(url)).toThrow(message)
})

test('no message has the password in it', () => {
  for (const rest of ['h/zero', 'h:port', 'h?x=1', 'a,b', 'h?tls=no']) {
    expect(() => parseUrl(`redis://user:hush@${rest}`)).toThrow(
      expect.not.objectContaining({ message: expect.stringContaining('hush') }),
    )
  }
  // Secrets that were not encoded, and so look like something else.
  for (const secret of ['hu@sh', 'hu/sh', 'hu?sh', '1/sh', '1?sh', 'hu#sh']) {
    expect(() => parseUrl(`redis://user:${secret}@h`)).toThrow(
      expect.not.objectContaining({ message: expect.stringMatching(/hu|sh/) }),
    )
  }
})
