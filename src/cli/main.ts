/**
 * `holdfast`, the command. `holdfast NAME` is commands/NAME.ts: this file loads it, parses its arguments (args.ts),
 * runs it, and turns whatever is thrown into one sentence and an exit code (failure.ts, exits.ts).
 */
import { readFileSync } from 'node:fs'
import { didYouMean, ownValue, parseInput, UsageError } from './args.ts'
import { COMMANDS, FOREIGN_COMMANDS, RENAMED } from './commands.ts'
import { enableCompileCache } from './compile-cache.ts'
import { EXITS } from './exits.ts'
import { print, printable, printJson, STDERR, STDOUT, say, write } from './output.ts'

async function main(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv
  if (name === undefined || name === '--help' || name === '-h' || name === 'help')
    return help(rest[0], name === undefined)
  if (name === '--version' || name === '-V') return version(rest.includes('--json'))
  const known = ownValue(COMMANDS, name)
  const renamed = ownValue(RENAMED, name)
  if (renamed !== undefined) throw new UsageError(`'holdfast ${name}' is called 'holdfast ${renamed}' now`)
  if (known === undefined) {
    const what = name.startsWith('-') ? `unknown option '${name}'` : `unknown command '${name}'`
    const ours = ownValue(FOREIGN_COMMANDS, name)
    if (ours !== undefined) throw new UsageError(`${what}; did you mean 'holdfast ${ours}'?`)
    throw new UsageError(`${what}${didYouMean(name, Object.keys(COMMANDS)) || ';'} holdfast --help lists them`)
  }
  const { command } = await known.load()
  const input = parseInput(name, command, rest)
  if (input.has('help')) return await help(name, false)
  // Set by the completions of shells: see commands/completion.ts.
  if (!process.env.HOLDFAST_COMPLETING) {
    const { alsoLoadFromWorkingFolder } = await import('../clients/shared/packages.ts')
    alsoLoadFromWorkingFolder(enableCompileCache)
  }
  return await command.run(input, COMMANDS)
}

/** Asked for, it goes to stdout; without a command, to stderr, and as an error. */
async function help(name: string | undefined, missing: boolean): Promise<number> {
  const { commandHelp, mainHelp } = await import('./help.ts')
  const known = name === undefined ? undefined : ownValue(COMMANDS, name)
  const summaries = Object.entries(COMMANDS).map(([command, { summary }]) => ({ name: command, summary }))
  const text =
    known === undefined ? mainHelp(summaries) : commandHelp(name as string, known.summary, (await known.load()).command)
  write(missing ? STDERR : STDOUT, `${text}\n`)
  return missing ? EXITS.usage.code : EXITS.ok.code
}

function version(json: boolean): number {
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')
  const { version } = JSON.parse(text) as { version: string }
  if (json) printJson(STDOUT, 'version', { version, node: process.version })
  else print(version)
  return EXITS.ok.code
}

async function fail(error: unknown, argv: readonly string[]): Promise<number> {
  const { failureOf } = await import('./failure.ts')
  const { kind, exit, message } = failureOf(error)
  const ours = argv.slice(0, argv.includes('--') ? argv.indexOf('--') : argv.length)
  if (ours.includes('--json')) printJson(STDERR, ours[0] ?? '', { error: { kind, message }, exit })
  else if (kind === 'bug') say(`an error inside holdfast, please report it: ${printable(message)}`)
  else if (kind !== 'signal') say(printable(message))
  if (process.env.HOLDFAST_DEBUG === '1') say(error instanceof Error ? (error.stack ?? message) : message)
  else if (kind === 'bug') say('HOLDFAST_DEBUG=1 shows where')
  return exit
}

const argv = process.argv.slice(2)
// Keeps the process alive until `main` has answered: nothing else of ours does.
setInterval(() => undefined, 2 ** 30)
// At once, and not when the last handle is closed: a client of an engine may keep some.
process.on('uncaughtException', (error) => void fail(error, argv).then((code) => process.exit(code)))
void main(argv)
  .catch((error: unknown) => fail(error, argv))
  .then((code) => process.exit(code))
