/**
 * Arguments. A command describes its options as data; this file parses them, and says of wrong ones what is wrong and
 * what was probably meant. Help texts and shell completions are made from the same data.
 */
import { parseArgs } from 'node:util'
import { nearest } from '../core/did-you-mean.ts'
import { type Duration, parseDuration } from '../core/duration.ts'
import { checkKey } from '../core/keys.ts'

export interface OptionSpec {
  readonly short?: string
  /** What it takes, as the help shows it: D (a duration), N, URL, `term|kill|ignore`. Without it: a flag. */
  readonly takes?: string
  readonly help: string
}

export type OptionSpecs = Readonly<Record<string, OptionSpec>>

/** Every command has these. */
export const COMMON: OptionSpecs = {
  url: { takes: 'URL', help: 'the engine; else HOLDFAST_URL, else a SQLite file in your state folder' },
  json: { help: 'print JSON, for programs' },
  help: { short: 'h', help: 'show this help' },
}

export interface CommandSpec {
  /** What follows the name: `KEY [options] -- COMMAND [ARGUMENT...]`. */
  readonly usage: string
  /** How many arguments it takes, besides options and besides what follows `--`. */
  readonly takes: { readonly least: number; readonly most: number }
  /** Whether a command line follows `--`. */
  readonly runs: boolean
  readonly options: OptionSpecs
  readonly examples: readonly (readonly [line: string, says: string])[]
  /** More sections of the help: exit codes, environment variables. */
  readonly notes?: Readonly<Record<string, readonly (readonly [name: string, says: string])[]>>
  /** Runs it, and answers the exit code. `commands`: all there are, for the one that describes them. */
  run(input: Input, commands: CommandTable): Promise<number>
}

/** A command that is loaded when it is asked for. */
export interface ListedCommand {
  readonly summary: string
  load(): Promise<{ readonly command: CommandSpec }>
}

export type CommandTable = Readonly<Record<string, ListedCommand>>

/** What the user did wrong. Ends with exit 64, and without a stack trace. */
export class UsageError extends Error {}

/** The arguments of one command, parsed. */
export class Input {
  readonly command: string
  readonly rest: readonly string[]
  /** What follows `--`. */
  readonly program: readonly string[]
  readonly #values: ReadonlyMap<string, string | true>

  constructor(
    command: string,
    rest: readonly string[],
    program: readonly string[],
    values: ReadonlyMap<string, string | true>,
  ) {
    this.command = command
    this.rest = rest
    this.program = program
    this.#values = values
  }

  has(name: string): boolean {
    return this.#values.has(name)
  }

  value(name: string): string | undefined {
    const value = this.#values.get(name)
    return value === true ? undefined : value
  }

  get json(): boolean {
    return this.has('json')
  }

  /** The first argument, as a key. */
  get key(): string {
    const key = this.rest[0] as string
    try {
      checkKey(key)
    } catch (error) {
      throw new UsageError((error as Error).message)
    }
    return key
  }

  durationMs(name: string): number | undefined {
    const text = this.value(name)
    if (text === undefined) return undefined
    if (text === '0') return 0
    // Scripts that come from flock mean seconds, programs mean milliseconds: only a unit tells.
    if (/^\d+(\.\d+)?$/.test(text))
      throw new UsageError(`--${name} needs a unit: ${text}s, ${text}ms, ${text}m or ${text}h`)
    try {
      return parseDuration(text as Duration, `--${name}`)
    } catch {
      throw new UsageError(`--${name} must be a duration like 250ms, 30s, 5m or 1h; got '${text}'`)
    }
  }

  wholeNumber(name: string, least: number, most: number): number | undefined {
    const text = this.value(name)
    if (text === undefined) return undefined
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (number >= least && number <= most) return number
    throw new UsageError(`--${name} must be a whole number from ${least} to ${most}; got '${text}'`)
  }

  oneOf<Choice extends string>(name: string, choices: readonly Choice[]): Choice | undefined {
    const text = this.value(name)
    if (text === undefined) return undefined
    const choice = choices.find((candidate) => candidate === text)
    if (choice !== undefined) return choice
    throw new UsageError(`--${name} must be ${choices.join(', ')}; got '${text}'${didYouMean(text, choices)}`)
  }
}

/** Parse what follows the name of the command. */
export function parseInput(command: string, spec: CommandSpec, argv: readonly string[]): Input {
  const split = argv.indexOf('--')
  // Where no command line follows it, it ends the options, as elsewhere: for a key that begins with `-`.
  const ours = split < 0 || !spec.runs ? argv : argv.slice(0, split)
  const program = split < 0 || !spec.runs ? [] : argv.slice(split + 1)
  const options = { ...spec.options, ...COMMON }
  const { values, rest } = parseOptions(options, ours)
  const input = new Input(command, rest, program, values)
  if (!input.has('help')) demandArguments(spec, input, split >= 0)
  return input
}

function parseOptions(
  options: OptionSpecs,
  argv: readonly string[],
): { values: Map<string, string | true>; rest: string[] } {
  const config = Object.fromEntries(
    Object.entries(options).map(([name, { short, takes }]) => [
      name,
      {
        type: takes === undefined ? ('boolean' as const) : ('string' as const),
        ...(short === undefined ? {} : { short }),
      },
    ]),
  )
  // Not strict: the errors of parseArgs know nothing of what was meant.
  const { tokens } = parseArgs({
    args: [...argv],
    options: config,
    strict: false,
    allowPositionals: true,
    tokens: true,
  })
  const values = new Map<string, string | true>()
  const rest: string[] = []
  for (const token of tokens) {
    if (token.kind === 'positional') rest.push(token.value)
    if (token.kind !== 'option') continue
    const { name, rawName, value } = token
    const spec = ownValue(options, name)
    if (spec === undefined) throw new UsageError(`unknown option '${rawName}'${meantOption(rawName, options)}`)
    if (spec.takes === undefined && value !== undefined)
      throw new UsageError(`'${rawName}' takes no value; got '${value}'`)
    if (spec.takes !== undefined && value === undefined)
      throw new UsageError(`'${rawName}' needs a value: ${rawName} ${spec.takes}`)
    values.set(name, value ?? true)
  }
  return { values, rest }
}

function demandArguments(spec: CommandSpec, input: Input, split: boolean): void {
  const { command, rest, program } = input
  const { least, most } = spec.takes
  const usage = `usage: holdfast ${command} ${spec.usage}`
  if (spec.runs && !split && rest.length > most) {
    const [key, ...words] = rest
    throw new UsageError(`put -- before the command: holdfast ${command} ${key} -- ${words.join(' ')}`)
  }
  if (rest.length < least)
    throw new UsageError(`${/^[A-Z]+/.exec(spec.usage)?.[0] ?? 'something'} is missing; ${usage}`)
  if (!spec.runs && split && rest.length > most) throw new UsageError(`'${command}' runs no command; ${usage}`)
  if (rest.length > most) throw new UsageError(`too many arguments: '${rest[most]}'; ${usage}`)
  if (spec.runs && program.length === 0) throw new UsageError(`no command to run; ${usage}`)
  // Node reads arguments as UTF-8, and puts this in the place of what is none.
  const garbled = program.find((argument) => argument.includes('\uFFFD'))
  if (garbled !== undefined)
    throw new UsageError(`'${garbled}' is not UTF-8, or has U+FFFD in it: the command would get another argument`)
}

/** Options of other programs that lock, and ours in their place. */
const FOREIGN: Readonly<Record<string, string>> = {
  '--timeout': 'wait',
  '--max-wait': 'wait',
  '--nonblock': 'try-once',
  '--nb': 'try-once',
  '--no-wait': 'try-once',
  '--conflict-exit-code': 'busy-exit',
  '--lease': 'ttl',
  '--max-time': 'at-most',
}

function meantOption(rawName: string, options: OptionSpecs): string {
  const ours = ownValue(FOREIGN, rawName)
  const spec = ours === undefined ? undefined : ownValue(options, ours)
  if (spec !== undefined) return `: it is --${ours} here (${spec.help})`
  return didYouMean(
    rawName,
    Object.keys(options).map((name) => `--${name}`),
  )
}

/** What `table` itself has under `name`: a user may type `constructor`, which every object inherits. */
export function ownValue<Value>(table: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}

/** `; did you mean 'x'?`, or nothing if nothing is near. */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const near = nearest(word, candidates)
  return near === undefined ? '' : `; did you mean '${near}'?`
}
