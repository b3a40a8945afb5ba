/**
 * `holdfast completion bash|zsh|fish`: a script that teaches your shell the commands, their options, and the keys in
 * use. Made from the same data as the help.
 */
import {
  COMMON,
  type CommandSpec,
  type CommandTable,
  didYouMean,
  type OptionSpecs,
  ownValue,
  UsageError,
} from '../args.ts'
import { EXITS } from '../exits.ts'
import { printJson, STDOUT, write } from '../output.ts'

const SHELLS: Readonly<Record<string, (commands: readonly Described[]) => string>> = { bash, zsh, fish }

export const command: CommandSpec = {
  usage: 'bash|zsh|fish',
  takes: { least: 1, most: 1 },
  runs: false,
  options: {},
  examples: [
    ['eval "$(holdfast completion bash)"', 'in ~/.bashrc'],
    ['holdfast completion zsh > ~/.zfunc/_holdfast', 'once, for zsh, with ~/.zfunc in your fpath'],
    ['holdfast completion fish > ~/.config/fish/completions/holdfast.fish', 'once, for fish'],
  ],
  run: async (input, commands) => {
    const shell = input.rest[0] as string
    const scriptOf = ownValue(SHELLS, shell)
    if (scriptOf === undefined)
      throw new UsageError(
        `no completion for '${shell}'; known: bash, zsh, fish${didYouMean(shell, Object.keys(SHELLS))}`,
      )
    const script = scriptOf(await describeAll(commands))
    if (input.json) printJson(STDOUT, input.command, { shell, script })
    else write(STDOUT, script)
    return EXITS.ok.code
  },
}

interface Described {
  readonly name: string
  readonly summary: string
  readonly options: OptionSpecs
  /** Its first argument is a key. */
  readonly takesKey: boolean
  readonly runs: boolean
}

async function describeAll(table: CommandTable): Promise<Described[]> {
  return Promise.all(
    Object.entries(table).map(async ([name, { summary, load }]) => {
      const { command: spec } = await load()
      return {
        name,
        summary,
        options: { ...spec.options, ...COMMON },
        takesKey: spec.usage.startsWith('KEY'),
        runs: spec.runs,
      }
    }),
  )
}

/**
 * Keys in use, one in a line. On a shared engine they are chosen by others, and a shell would act on some of them: only
 * keys of plain characters are offered, which no shell expands, splits or takes for an option. To press TAB is not to
 * start anything: a client in the project that the shell is in, which may just have been cloned, is not loaded for it.
 */
const KEYS =
  "HOLDFAST_COMPLETING=1 holdfast ls 2>/dev/null | awk 'NR > 1 && NF == 3 && $3 ~ /^[A-Za-z0-9_.\\/][A-Za-z0-9_.\\/:@%+,=-]*$/ { print $3 }'"

const flags = (options: OptionSpecs): string[] =>
  Object.entries(options).flatMap(([name, { short }]) =>
    short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`],
  )

function bash(commands: readonly Described[]): string {
  const cases = commands.map(
    ({ name, options, takesKey }) =>
      `    ${name}) options='${flags(options).join(' ')}'${takesKey ? '; keys=1' : ''}${name === 'completion' ? "; words='bash zsh fish'" : ''} ;;`,
  )
  return `# bash completion for holdfast
_holdfast() {
  local current=\${COMP_WORDS[COMP_CWORD]} options='' words='' keys='' i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${commands.map(({ name }) => name).join(' ')} --help --version' -- "$current"))
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ \${COMP_WORDS[i]} == -- ]]; then
      if ((i + 1 == COMP_CWORD)); then COMPREPLY=($(compgen -c -- "$current")); else COMPREPLY=($(compgen -f -- "$current")); fi
      return
    fi
  done
  case \${COMP_WORDS[1]} in
${cases.join('\n')}
  esac
  if [[ $current == -* ]]; then words=$options keys=''; fi
  if [[ -n $keys ]]; then _holdfast_keys; else COMPREPLY=($(compgen -W "$words" -- "$current")); fi
}
# Without compgen -W, which would expand what is in a key. Bash splits words at colons, which keys often have: so the word is
# taken from the line, and what bash has of it already is cut off.
_holdfast_keys() {
  local typed=\${COMP_LINE:0:COMP_POINT} already='' key
  typed=\${typed##*[[:space:]]}
  if [[ $COMP_WORDBREAKS == *:* && $typed == *:* ]]; then already=\${typed%"\${typed##*:}"}; fi
  while IFS= read -r key; do
    if [[ $key == "$typed"* ]]; then COMPREPLY+=("\${key#"$already"}"); fi
  done < <(${KEYS})
}
complete -F _holdfast holdfast
`
}

function zsh(commands: readonly Described[]): string {
  const quote = (text: string): string => `'${text.replaceAll("'", "'\\''").replaceAll(':', '\\:')}'`
  const cases = commands.map(({ name, options, takesKey }) => {
    const words = takesKey ? `compadd -- \${(f)"$(${KEYS})"}` : name === 'completion' ? 'compadd bash zsh fish' : ':'
    return `    ${name}) if [[ $PREFIX == -* ]]; then compadd -- ${flags(options).join(' ')}; else ${words}; fi ;;`
  })
  return `#compdef holdfast
_holdfast() {
  local -a commands=(
${commands.map(({ name, summary }) => `    ${quote(name).slice(0, -1)}:${quote(summary).slice(1)}`).join('\n')}
  )
  if ((CURRENT == 2)); then _describe command commands; return; fi
  local dashes=\${words[(I)--]}
  if ((dashes > 0 && dashes < CURRENT)); then shift dashes words; ((CURRENT -= dashes)); _normal; return; fi
  case $words[2] in
${cases.join('\n')}
  esac
}
compdef _holdfast holdfast
`
}

function fish(commands: readonly Described[]): string {
  const quote = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`
  const lines = ['# fish completion for holdfast', 'complete -c holdfast -f']
  for (const { name, summary, options, takesKey, runs } of commands) {
    lines.push(`complete -c holdfast -n __fish_use_subcommand -a ${name} -d ${quote(summary)}`)
    const here = `-n '__fish_seen_subcommand_from ${name}'`
    for (const [option, { short, takes, help }] of Object.entries(options)) {
      lines.push(
        `complete -c holdfast ${here}${short === undefined ? '' : ` -s ${short}`} -l ${option}${takes === undefined ? '' : ' -x'} -d ${quote(help)}`,
      )
    }
    if (takesKey) lines.push(`complete -c holdfast ${here} -a ${quote(`(${KEYS})`)}`)
    if (runs)
      lines.push(
        `complete -c holdfast -n '__fish_seen_subcommand_from ${name}; and contains -- -- (commandline -opc)' -F`,
      )
  }
  lines.push("complete -c holdfast -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'", '')
  return lines.join('\n')
}
