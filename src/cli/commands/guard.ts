/**
 * `holdfast guard show [PREFIX]`, `holdfast guard forget` and `holdfast guard reset RESOURCE --seen N`: what guards
 * remember, and how to make them forget.
 */
import type { Mark } from '../../guards/marks.ts'
import { type CommandSpec, didYouMean, type Input, UsageError } from '../args.ts'
import { EXITS } from '../exits.ts'
import { askMarks, hasNoMarks } from '../marks-at-url.ts'
import { colours, print, printable, printJson, STDOUT, say, table } from '../output.ts'

export const command: CommandSpec = {
  usage: 'show [PREFIX] | forget | reset RESOURCE --seen N [options]',
  takes: { least: 1, most: 2 },
  runs: false,
  options: {
    seen: {
      takes: 'N',
      help: 'for reset: the token in SEEN, as `holdfast guard show` tells it; refused if a higher one was seen since',
    },
    table: { takes: 'NAME', help: 'the table in which guards keep what they have seen, if it is not holdfast_marks' },
  },
  examples: [
    [
      'holdfast guard show --url postgres://db/shop',
      'each guarded resource: the highest token that it was shown, and the highest that has written',
    ],
    [
      'holdfast guard forget --url postgres://db/shop',
      'tidy up after guards that were made with `forget`: remove what is older than that; for a cron job',
    ],
    [
      'holdfast guard reset order:42 --seen 17',
      'let order:42 take any token again: only if the locks were set up anew, with lower tokens, and no old holder is left',
    ],
  ],
  run: (input) => {
    const [verb = '', ...others] = input.rest
    if (verb === 'show') return show(input, others[0] ?? '')
    if (verb === 'reset') return reset(input, others[0])
    if (verb === 'forget') return forget(input, others[0])
    throw new UsageError(`guard show, forget or reset; got '${verb}'${didYouMean(verb, ['show', 'forget', 'reset'])}`)
  },
}

async function show(input: Input, prefix: string): Promise<number> {
  if (input.has('seen')) throw new UsageError('--seen is for reset')
  const marks = await orWithoutMarks(
    askMarks(input, (marks) => marks.list(prefix)),
    [],
  )
  if (input.json) printJson(STDOUT, input.command, { prefix, marks })
  else if (marks.length > 0) print(listing(marks))
  return EXITS.ok.code
}

async function forget(input: Input, resource: string | undefined): Promise<number> {
  if (resource !== undefined || input.has('seen'))
    throw new UsageError('guard forget removes all marks whose time is over; one alone: holdfast guard reset RESOURCE')
  const forgotten = await orWithoutMarks(
    askMarks(input, (marks) => marks.forget()),
    0,
  )
  if (input.json) printJson(STDOUT, input.command, { forgotten })
  else print(forgotten === 1 ? 'forgot 1 mark' : `forgot ${forgotten} marks`)
  return EXITS.ok.code
}

async function reset(input: Input, resource: string | undefined): Promise<number> {
  const text = input.value('seen')
  if (resource === undefined) throw new UsageError('which one? holdfast guard reset RESOURCE --seen N')
  if (text === undefined) throw new UsageError(`which mark? --seen N; holdfast guard show ${printable(resource)} tells`)
  if (!/^\d+$/.test(text)) throw new UsageError(`--seen must be a whole number; got '${text}'`)
  const seen = BigInt(text)
  const done = await orWithoutMarks(
    askMarks(input, (marks) => marks.reset(resource, seen)),
    false,
  )
  if (input.json) printJson(STDOUT, input.command, { resource, seen, reset: done })
  else if (done) print(`forgot '${printable(resource)}': its guard takes any token now, an old one too`)
  else say(`nothing reset: '${printable(resource)}' has no mark ${seen}`)
  return done ? EXITS.ok.code : EXITS.no.code
}

async function orWithoutMarks<Result>(asked: Promise<Result>, fallback: Result): Promise<Result> {
  return await asked.catch((error: unknown) => {
    if (hasNoMarks(error)) return fallback
    throw error
  })
}

function listing(marks: readonly Mark[]): string {
  const rows = marks.map(({ resource, seen, written }) => [
    String(seen),
    written === 0n ? '-' : String(written),
    printable(resource),
  ])
  return table(['SEEN', 'WRITTEN', 'RESOURCE'], rows, colours(STDOUT).dim)
}
