/** Help texts, from the same data that the arguments are parsed with. */
import { COMMON, type CommandSpec, type OptionSpecs } from './args.ts'

export function commandHelp(name: string, summary: string, spec: CommandSpec): string {
  const lines = [`holdfast ${name}: ${summary}`, '', `usage: holdfast ${name} ${spec.usage}`, '', 'options:']
  lines.push(...optionRows({ ...spec.options, ...COMMON }), '', 'examples:')
  for (const [line, says] of spec.examples) lines.push(`  # ${says}`, `  ${line}`)
  for (const [title, rows] of Object.entries(spec.notes ?? {}))
    lines.push('', `${title}:`, ...aligned(rows.map(([left, help]) => ({ left: `  ${left}`, help }))))
  return lines.join('\n')
}

function optionRows(options: OptionSpecs): string[] {
  const rows = Object.entries(options).map(([name, { short, takes, help }]) => ({
    left: `  ${short === undefined ? '   ' : `-${short},`} --${name}${takes === undefined ? '' : ` ${takes}`}`,
    help,
  }))
  return aligned(rows)
}

function aligned(rows: readonly { left: string; help: string }[]): string[] {
  const width = Math.max(...rows.map(({ left }) => left.length))
  return rows.map(({ left, help }) => `${left.padEnd(width)}  ${help}`)
}

export function mainHelp(commands: readonly { name: string; summary: string }[]): string {
  return [
    'holdfast: locks for the shell, across processes, on SQLite or the engine you already run',
    '',
    'usage: holdfast COMMAND [options]',
    '',
    'commands:',
    ...aligned(commands.map(({ name, summary }) => ({ left: `  ${name}`, help: summary }))),
    '',
    'holdfast COMMAND --help says more, with examples. holdfast --version says which one this is.',
    '',
    'examples:',
    '  # run a backup, unless one is running',
    '  holdfast run backup -n -- ./backup.sh',
    '  # who holds, who waits',
    '  holdfast show backup',
  ].join('\n')
}
