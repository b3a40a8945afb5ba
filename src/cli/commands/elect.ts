/** `holdfast elect KEY -- COMMAND`: the command runs wherever and whenever this process is the leader. */
import { type CommandSpec, type Input, UsageError } from '../args.ts'
import { refuseProgram } from '../command-process.ts'
import { Interrupted } from '../failure.ts'
import { JobRunner, refuse } from '../job.ts'
import { JOB_OPTIONS, limitsOf, type RunLimits } from '../supervise.ts'

const { 'on-lost': _, ...OPTIONS } = JOB_OPTIONS

export const command: CommandSpec = {
  usage: 'KEY [options] -- COMMAND [ARGUMENT...]',
  takes: { least: 1, most: 1 },
  runs: true,
  options: {
    ...OPTIONS,
    'on-lost': { takes: 'term|kill', help: 'how the command is ended if leadership is lost (term)' },
  },
  examples: [
    ['holdfast elect scheduler -- ./scheduler', 'on every host, with one --url: it runs on one of them'],
    ['holdfast elect scheduler --ttl 5s -- ./scheduler', 'another takes over within about five seconds'],
  ],
  run: async (input) => {
    const limits = limitsOf(input)
    if (limits.onLost === 'ignore') throw new UsageError('--on-lost ignore would make two leaders; use term or kill')
    const refused = refuseProgram(input.program)
    if (refused !== undefined) return refuse(input, 'not-run', refused.exit, refused.message)
    return campaign(input, limits)
  },
}

async function campaign(input: Input, limits: RunLimits): Promise<number> {
  await using runner = await JobRunner.open(input, limits)
  for (;;) {
    const term = await runner.run({ limit: 1, waitMs: Number.POSITIVE_INFINITY, outlasts: true })
    if (term === undefined) continue
    await term.lease.release()
    runner.report(term)
    if (!term.lost) return term.exit
    // Told to end while we were losing: then that is what ends us, and not the next election.
    if (runner.toldToEnd !== undefined) throw new Interrupted(runner.toldToEnd)
    runner.remark('no longer the leader; standing for election again')
  }
}
