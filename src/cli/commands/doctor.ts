/** `holdfast doctor`: is the engine there, does it do what locks need, and what could break its promises? */
import type { Finding } from '../../core/engine.ts'
import { redactUrl } from '../../core/redact.ts'
import type { CommandSpec } from '../args.ts'
import { type Examined, examine } from '../doctor-checks.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { colours, print, printable, printJson, STDOUT } from '../output.ts'

const HOLDER = { holder: 'holdfast doctor' }

export const command: CommandSpec = {
  usage: '[options]',
  takes: { least: 0, most: 0 },
  runs: false,
  options: {},
  examples: [
    ['holdfast doctor', 'check the default engine; exit 1 if something fails'],
    ['holdfast doctor --url redis://127.0.0.1:6379 --json', 'another engine, for a program'],
  ],
  run: async (input) => {
    await using opened = await open(input, HOLDER)
    const { locks, url } = opened
    const { engine } = locks
    const examined: Examined = { engine, locks, another: () => open(input, HOLDER) }
    const findings = await examine(examined)
    const failed = findings.some(({ status }) => status === 'fail')
    if (input.json)
      printJson(STDOUT, input.command, {
        engine: engine.name,
        url: redactUrl(url),
        ok: !failed,
        checks: findings.map(withTodo),
      })
    else print(text(engine.name, redactUrl(url), findings))
    return failed ? EXITS.no.code : EXITS.ok.code
  },
}

/** Programs find every member in every row. */
function withTodo(finding: Finding): object {
  return { ...finding, todo: finding.todo ?? null }
}

function text(engine: string, url: string, findings: readonly Finding[]): string {
  const { bold, green, yellow, red, dim } = colours(STDOUT)
  const paint = { ok: green, warn: yellow, fail: red }
  const width = Math.max(...findings.map(({ name }) => name.length))
  const lines = findings.flatMap(({ name, status, finding, todo }) => [
    `${paint[status](status.padEnd(4))}  ${name.padEnd(width)}  ${printable(finding)}`,
    ...(todo === undefined ? [] : [`${' '.repeat(width + 8)}${dim(`→ ${printable(todo)}`)}`]),
  ])
  return [`${bold(engine)} ${dim(url)}`, ...lines].join('\n')
}
