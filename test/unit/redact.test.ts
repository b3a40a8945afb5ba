/**
 * What looks like a secret is left out of holders and messages, in every spelling that people use, and nothing else.
 */
import { expect, test } from 'vitest'
import { redactCommand, redactUrl } from '../../src/core/redact.ts'

const SECRET = 'hunter2'

test.each([
  [['x', '--token', SECRET, '-password', SECRET]],
  [['x', `--password=${SECRET}`]],
  [['x', `--api-key=${SECRET}`]],
  [['env', `PGPASSWORD=${SECRET}`, 'psql']],
  [['sh', '-c', `deploy --password=${SECRET} --force`]],
  [['sh', '-c', `deploy --password ${SECRET} --force`]],
  [['sh', '-c', `deploy --password '${SECRET}'`]],
  [['sh', '-c', `AWS_SECRET_ACCESS_KEY="${SECRET}" aws s3 ls`]],
  [['sh', '-c', `DATABASE_URL=postgres://app:${SECRET}@db/shop ./migrate`]],
  [['sh', '-c', `DATABASE_URL='postgres://app:${SECRET}@db/shop' ./migrate`]],
  [['x', `--url=redis://:${SECRET}@host:6379/0`]],
  [['x', `redis://user:${SECRET}@host`]],
  [['x', `--target=https://host/path?token=${SECRET}`]],
  [['curl', '-u', `me:${SECRET}`, 'https://example.org']],
  [['mysql', '-h', 'db', `-p${SECRET}`]],
  [['/usr/bin/mysqldump', `-p${SECRET}`, 'shop']],
  [['x', `--passphrase=correct horse ${SECRET}`]],
  [['x', '--passphrase', `correct horse ${SECRET}`]],
  [['x', `postgres://app:my ${SECRET}@db/shop`]],
  [['x', `postgres://app:it's ${SECRET}@db/shop`]],
  [['x', `--url=postgres://app:it's ${SECRET}@db/shop`]],
  [['x', `PGPASSWORD=a"b ${SECRET}`]],
  [['curl', '-H', `Authorization: Bearer ${SECRET}`, 'https://example.org']],
  [['curl', `--header=Authorization: Bearer ${SECRET}`]],
  [['curl', '-H', `X-Api-Key:${SECRET}`]],
  [['curl', '-H', `Cookie: a=1; session=${SECRET}`]],
  [['sh', '-c', `curl -H "Authorization: Bearer ${SECRET}" https://example.org`]],
  [['sh', '-c', `curl -H 'authorization: ${SECRET}' https://example.org`]],
  [['sh', '-c', `curl -H "X-Auth-Token: ${SECRET}" https://example.org`]],
  [['curl', '-d', `{"user":"me","password":"${SECRET}"}`]],
  [['curl', '-d', `{"password": "${SECRET}"}`]],
  [['redis-cli', '-a', SECRET, 'ping']],
  [['sshpass', '-p', SECRET, 'ssh', 'host']],
  [['sshpass', `-p${SECRET}`, 'ssh', 'host']],
  [['sh', '-c', `mysqldump -p${SECRET} shop | gzip`]],
  [['sh', '-c', `/usr/bin/redis-cli -h cache -a ${SECRET} ping`]],
  [['openssl', 'rsa', '-passin', `pass:${SECRET}`]],
])('%j', (command) => {
  expect(redactCommand(command).join(' ')).not.toContain(SECRET)
  expect(redactCommand(command)[0]).toBe(command[0])
})

test('a secret is replaced, and what is around it stays', () => {
  expect(redactCommand(['x', '--token', 'a', '-password', 'b', '-v'])).toEqual([
    'x',
    '--token',
    '***',
    '-password',
    '***',
    '-v',
  ])
  expect(redactCommand(['sh', '-c', 'A=1 deploy --password=pw --force'])).toEqual([
    'sh',
    '-c',
    'A=1 deploy --password=*** --force',
  ])
  expect(redactCommand(['x', 'postgres://app:pw@db/shop?a=1'])).toEqual(['x', 'postgres://app:***@db/shop?a=1'])
})

test('a program that asks for its password takes the next word for something else', () => {
  expect(redactCommand(['mysql', '-p', 'shop'])).toEqual(['mysql', '-p', 'shop'])
  expect(redactCommand(['curl', '-H', 'Authorization: Bearer x', 'https://host'])).toEqual([
    'curl',
    '-H',
    'Authorization: ***',
    'https://host',
  ])
})

test('what is no secret stays as it is', () => {
  const plain = [
    'rsync',
    '-a',
    '--delete',
    'src/',
    'host:dst/',
    'key=value',
    '--passes',
    '3',
    '--max-tokens',
    '100',
    'https://example.org/path',
    'Accept: text/html',
    '{"user":"me"}',
    '-p',
    '8080:80',
  ]
  expect(redactCommand(plain)).toEqual(plain)
  const shell = ['sh', '-c', 'for i in 1 2 3; do  echo "$i" > \'out file\'; done']
  expect(redactCommand(shell)).toEqual(shell)
})

test.each([
  ['word characters', 'a'.repeat(64 * 1024)],
  ['names of secrets', 'pass-'.repeat(16 * 1024)],
  ['starts of URLs', 'a://a:'.repeat(10 * 1024)],
  ['parameters', `redis://h?${'key'.repeat(20 * 1024)}`],
  ['headers', 'authorization:'.repeat(5 * 1024)],
  ['colons', ':'.repeat(64 * 1024)],
  ['slashes', '/mysql'.repeat(10 * 1024)],
  ['question marks', `redis://h${'?pass'.repeat(16 * 1024)}`],
])('a long text of %s takes no longer than it should', (_, text) => {
  // Quadratic, this would be four thousand million steps.
  const startedAt = performance.now()
  redactCommand([text, text])
  redactUrl(text)
  expect(performance.now() - startedAt).toBeLessThan(2000)
})
