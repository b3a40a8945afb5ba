/**
 * Which commands there are. Each is in a file of its own, loaded only when it is asked for, so that starting costs
 * little more than starting Node.
 */
import type { CommandTable } from './args.ts'

export const COMMANDS: CommandTable = {
  run: { summary: 'run a command while holding a lock', load: () => import('./commands/run.ts') },
  ls: {
    summary: 'list the keys that are held or waited for (-l: by whom, for how long)',
    load: () => import('./commands/ls.ts'),
  },
  show: { summary: 'show who holds a key and who waits, in order', load: () => import('./commands/show.ts') },
  watch: { summary: 'show it again whenever it changes', load: () => import('./commands/watch.ts') },
  metrics: {
    summary: 'print how many hold and wait, and for how long, as gauges for Prometheus',
    load: () => import('./commands/metrics.ts'),
  },
  evict: { summary: 'take a lock away from its holder', load: () => import('./commands/evict.ts') },
  guard: {
    summary: 'show or reset the highest token that each guarded resource has seen',
    load: () => import('./commands/guard.ts'),
  },
  elect: { summary: 'run a command while being the leader', load: () => import('./commands/elect.ts') },
  rate: { summary: 'show what is left of the rate limits of a key', load: () => import('./commands/rate.ts') },
  stock: { summary: 'show what is sold, held and left of a stock', load: () => import('./commands/stock.ts') },
  cron: { summary: 'list the jobs of cron(), and their last runs', load: () => import('./commands/cron.ts') },
  doctor: { summary: 'check the engine and what could break its promises', load: () => import('./commands/doctor.ts') },
  migrate: {
    summary: 'make the tables of an engine that has some, or print how',
    load: () => import('./commands/migrate.ts'),
  },
  completion: { summary: 'print a completion script for your shell', load: () => import('./commands/completion.ts') },
}

/** Commands that have another name now. */
export const RENAMED: Readonly<Record<string, string>> = { fence: 'guard' }

/** What other tools call ours. */
export const FOREIGN_COMMANDS: Readonly<Record<string, string>> = {
  list: 'ls',
  status: 'ls -l',
  lock: 'run',
  exec: 'run',
  unlock: 'evict',
  release: 'evict',
  check: 'doctor',
}
