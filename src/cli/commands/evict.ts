/** `holdfast evict KEY --token N`: take a lock away from the holder with that token. */
import { formatDuration } from '../../core/duration.ts'
import type { Line } from '../../core/engine.ts'
import { holderInWords } from '../../core/holder.ts'
import { type CommandSpec, type Input, UsageError } from '../args.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { print, printable, printJson, STDOUT, say } from '../output.ts'

export const command: CommandSpec = {
  usage: 'KEY --token N [options]',
  takes: { least: 1, most: 1 },
  runs: false,
  options: {
    token: { takes: 'N', help: 'the token of the entry, as `holdfast show` tells it; refused if it has moved on' },
    now: {
      help: 'free the key at once, though its holder may still be at work: only if it is dead, or guards check tokens',
    },
  },
  examples: [
    ['holdfast evict nightly --token 17', 'its holder is told to stop, and ends before the next one is let in'],
    ['holdfast evict nightly --token 17 --now', 'let the next one in at once'],
  ],
  run: async (input) => {
    const { key } = input
    const token = tokenOf(input)
    const how = input.has('now') ? 'now' : 'expire'
    await using opened = await open(input)
    const before = await opened.ask((locks) => locks.inspect(key))
    const evicted = await opened.ask((locks) => locks.evict(key, token, how))
    const exit = evicted ? EXITS.ok.code : EXITS.no.code
    if (input.json) printJson(STDOUT, input.command, { key, token, how, evicted })
    else if (evicted) print(`evicted token ${token} from '${printable(key)}'${consequence(before, token, how)}`)
    else say(`nothing evicted: the line has moved on; ${whoIsThere(before)}`)
    return exit
  },
}

function tokenOf(input: Input): bigint {
  const text = input.value('token')
  if (text === undefined) throw new UsageError(`which one? --token N; holdfast show ${printable(input.key)} tells`)
  if (!/^\d+$/.test(text)) throw new UsageError(`--token must be a whole number; got '${text}'`)
  return BigInt(text)
}

function consequence(before: Line, token: bigint, how: 'expire' | 'now'): string {
  const entry = before.entries.find((candidate) => candidate.token === token)
  if (entry === undefined) return ''
  if (entry.state === 'waiting') {
    const held = before.entries.find(({ state }) => state === 'held')
    return `: it waited${held === undefined ? '' : `; ${who(held.holder)} still holds it, with token ${held.token}`}`
  }
  if (how === 'now') return `: ${who(entry.holder)} may still be at work`
  return `: ${who(entry.holder)} is told to stop; the key is free as soon as it has, in ${formatDuration(entry.remainingMs)} at the latest`
}

const who = (holder: string): string => printable(holderInWords(holder))

function whoIsThere(line: Line): string {
  const tokens = line.entries.map(({ token, state }) => `${token} ${state}`).join(', ')
  return tokens === '' ? `'${printable(line.key)}' is free` : `'${printable(line.key)}' has ${tokens}`
}
