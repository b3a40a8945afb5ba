/** `holdfast run KEY -- COMMAND`: the command runs while the lock is held, and never while it is not. */
import { UNLIMITED } from '../../core/engine.ts'
import { checkOutlives } from '../../core/entry-lease.ts'
import { type CommandSpec, type Input, UsageError } from '../args.ts'
import { refuseProgram } from '../command-process.ts'
import { EXITS, exitRows } from '../exits.ts'
import { JobRunner, type RunResult, refuse, type Wanted } from '../job.ts'
import { printable, say } from '../output.ts'
import { JOB_OPTIONS, limitsOf, type RunLimits } from '../supervise.ts'
import { heldInWords } from '../wait-display.ts'

export const command: CommandSpec = {
  usage: 'KEY [options] -- COMMAND [ARGUMENT...]',
  takes: { least: 1, most: 1 },
  runs: true,
  options: {
    wait: {
      short: 'w',
      takes: 'D',
      help: 'how long to stand in line, for ever unless given; exit 124 if that is over',
    },
    'try-once': { short: 'n', help: 'do not wait: exit 75 if it is busy' },
    shared: { short: 's', help: 'hold together with others who say --shared (a read lock)' },
    limit: { takes: 'N', help: 'hold together with up to N-1 others (a semaphore)' },
    'at-least': {
      takes: 'D',
      help: 'keep the key busy this long, even if the command is faster: it is shown as held until then',
    },
    'at-most': {
      takes: 'D',
      help: 'end the command after this long: TERM, after --grace KILL; exit 143 or 137. For a command that may hang',
    },
    'busy-exit': { takes: 'N', help: 'the exit code of -n for busy, instead of 75' },
    ...JOB_OPTIONS,
  },
  examples: [
    ['holdfast run nightly -n -- ./backup.sh', 'a backup, unless one is running'],
    ['holdfast run deploy --wait 10m -- make deploy', 'stand in line for up to ten minutes'],
    [
      'holdfast run report -n --at-least 50s -- ./report.sh',
      'from the crontabs of five hosts, with --url: once a minute, on the host that is first',
    ],
    ['holdfast run gpu --limit 2 -- ./train.sh', 'two at a time'],
    ['holdfast run db --shared -- ./read.sh', 'many readers; a command without --shared writes alone'],
    ['holdfast run sync --at-most 1h --grace 30s -- ./sync.sh', 'an hour at most'],
  ],
  notes: {
    'exit codes, beside those of the command itself': [
      ...exitRows(['busy', 'waited', 'lost', 'usage', 'unreachable', 'cannotRun', 'notFound']),
      ['128+n', 'the command was ended by signal n: 143 by the TERM of --at-most, 137 by its KILL'],
    ],
    'what the command finds in its environment': [
      ['HOLDFAST_KEY', 'the key'],
      ['HOLDFAST_TOKEN', 'the fencing token of this hold: higher than that of every hold before it'],
      ['HOLDFAST_HOLDER', 'how this hold is shown to others'],
    ],
  },
  run: async (input) => {
    const plan = planOf(input)
    const refused = refuseProgram(input.program)
    if (refused !== undefined) return refuse(input, 'not-run', refused.exit, refused.message)
    return runOnce(input, plan)
  },
}

interface Plan extends Wanted {
  readonly limits: RunLimits
  readonly atLeastMs: number
  readonly busyExit: number
}

const MOST_EXIT = 255

function planOf(input: Input): Plan {
  const waitMs = input.durationMs('wait')
  if (input.has('try-once') && waitMs !== undefined) throw new UsageError('-n does not wait: leave out -n or --wait')
  if (input.has('shared') && input.has('limit'))
    throw new UsageError('--shared has no limit: leave out --shared or --limit')
  return {
    limits: limitsOf(input),
    waitMs: input.has('try-once') ? 0 : (waitMs ?? Number.POSITIVE_INFINITY),
    outlasts: false,
    limit: input.has('shared') ? UNLIMITED : (input.wholeNumber('limit', 1, UNLIMITED) ?? 1),
    atLeastMs: input.durationMs('at-least') ?? 0,
    busyExit: input.wholeNumber('busy-exit', 0, MOST_EXIT) ?? EXITS.busy.code,
  }
}

async function runOnce(input: Input, plan: Plan): Promise<number> {
  const { key } = input
  await using runner = await JobRunner.open(input, plan.limits)
  checkOutlives(plan.atLeastMs, runner.locks.engine)
  const result = await runner.run(plan)
  if (result === undefined) {
    const holder = input.has('quiet') ? '' : await heldInWords(runner.locks, key)
    return refuse(input, 'busy', plan.busyExit, `'${printable(key)}' is busy${holder}`)
  }
  await giveBack(result, plan.atLeastMs)
  runner.report(result)
  return result.exit
}

/** With some of --at-least left, the key stays busy behind us. */
async function giveBack({ lease, lost, heldMs }: RunResult, atLeastMs: number): Promise<void> {
  const released = await lease.release(atLeastMs > heldMs ? { after: atLeastMs - heldMs } : {})
  if (!released && !lost) say(`could not give back '${printable(lease.key)}': it will expire by itself`)
}
