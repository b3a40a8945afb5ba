/** What is put into bytes once for all servers is what ioredis would have written to each. */
import { Command } from 'ioredis'
import { expect, test } from 'vitest'
import { bytesOf, loadBroadcast } from '../../src/engines/redlock/broadcast.ts'

const CALLS = [
  ['f'.repeat(40), '0'],
  ['f'.repeat(40), '0', 'lock:order:42\0', '', 'id 1 77 '],
  ['f'.repeat(40), '0', 'Schlüssel 🔒', 'line\r\nbreak'],
]

test.each(CALLS.map((words) => [words]))('%j', (words) => {
  expect(bytesOf(words).toString()).toBe(new Command('evalsha', [...words]).toWritable({}))
})

test('each call has its own bytes, and each server a command of its own', async () => {
  const broadcast = await loadBroadcast()
  const [one = [], other = []] = CALLS
  const commands = [broadcast(one), broadcast(one), broadcast(other), broadcast(one)]
  expect(new Set(commands).size).toBe(4)
  expect(commands.map((command) => command.toWritable({}))).toEqual([one, one, other, one].map(bytesOf))
})
