/** What we put into the form of the protocol is what ioredis would have written. */
import { Command } from 'ioredis'
import { expect, test } from 'vitest'
import { prepareEvalsha, protocolText } from '../../src/clients/redis/ioredis.ts'

const CALLS = [
  ['f'.repeat(40), '0'],
  ['f'.repeat(40), '0', 'lock:order:42\0', '', 'id 1 77 '],
  ['f'.repeat(40), '0', 'Schlüssel 🔒', 'line\r\nbreak'],
]

test.each(CALLS.map((words) => [words]))('%j', (words) => {
  expect(protocolText(words)).toBe(new Command('evalsha', [...words]).toWritable({}))
})

test('each call has its own text, and each server a command of its own', () => {
  const prepare = prepareEvalsha(Command)
  const [one = [], other = []] = CALLS
  const commands = [prepare(one), prepare(one), prepare(other), prepare(one)]
  expect(new Set(commands).size).toBe(4)
  expect(commands.map((command) => command.toWritable({}))).toEqual([one, one, other, one].map(protocolText))
})
