/**
 * What users import as `holdfast/cron`: jobs that run once for each tick, in a whole fleet of hosts.
 *
 * Read schedule.ts (what a tick is), decision.ts (the pure rule of what to do when), job-record.ts (what is stored),
 * cron-job.ts (one turn: look, stand in line, claim, work), job-timer.ts (when turns are taken), then jobs.ts and
 * tick.ts. node-cron.ts is what another scheduler needs; that of Nest is in frameworks/nest/.
 */

export type { Run, RunWork } from './cron-job.ts'
export type { Missed, Overlap } from './decision.ts'
export type { JobSummary, PastRun } from './history.ts'
export type { RunOutcome } from './job-record.ts'
export { type CronOptions, cron, type Jobs } from './jobs.ts'
export { coordinator, type NodeCronCoordinator } from './node-cron.ts'
export type { JobOptions, RunOptions } from './options.ts'
export type { JobSchedule } from './schedule.ts'
export { type TickOptions, type TickResult, tick } from './tick.ts'
