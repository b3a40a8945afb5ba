/** What `holdfast doctor` wants to know of a server: facts that decide what locks on it are worth. */

import { fault } from '../../clients/mysql/errors.ts'
import type { MysqlWire, Rows } from '../../clients/mysql/wire.ts'
import { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Clock } from '../../core/clock.ts'
import { Ear } from './ear.ts'
import { type Names, renamed } from './names.ts'

export interface Diagnosis {
  /** As the server says it: `10.11.14-MariaDB-0+deb12u2`. */
  readonly version: string
  readonly mariadb: boolean
  /** The same as a number: 101114. */
  readonly versionNumber: number
  /** It refuses writes, as replicas do. */
  readonly readOnly: boolean
  /** `innodb_flush_log_at_trx_commit`: 1 is what a crash of the machine does no harm to. */
  readonly flushing: number
  /** `binlog_format`, if there is such a log. */
  readonly log: string | undefined
  readonly connections: { readonly used: number; readonly most: number }
  /** How far the server's clock is ahead of ours, as far as one question can tell. */
  readonly clockAheadMs: number
  /** Whether a listener can be woken. Undefined: this engine does not listen. */
  readonly hears: boolean | undefined
}

const FACTS = `SELECT VERSION(), @@read_only, @@innodb_flush_log_at_trx_commit, @@log_bin, @@binlog_format, @@max_connections,
  CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR)`
const CONNECTIONS = `SHOW GLOBAL STATUS LIKE 'Threads_connected'`

const LIMIT_MS = 5000
/** To be woken takes a millisecond; if it takes this long, nobody is. */
const WAKE_MS = 1000
const LOOK_EVERY_MS = 20

export interface Examined {
  readonly wire: MysqlWire
  readonly listens: boolean
  readonly names: Names
  readonly clock: Clock
  /** A client's name that nobody else has. */
  readonly client: string
  /** The wall clock, now. */
  readonly wallMs: () => number
}

export async function diagnose(examined: Examined): Promise<Diagnosis> {
  const { wallMs } = examined
  try {
    const askedAt = wallMs()
    const [[version, readOnly, flushing, hasLog, log, most, nowUs] = []] = await ask(examined, FACTS)
    const clockAheadMs = Number(nowUs) / 1000 - (askedAt + wallMs()) / 2
    const [[, used] = []] = await ask(examined, CONNECTIONS)
    return {
      version: String(version),
      mariadb: /mariadb/i.test(String(version)),
      versionNumber: numberOf(String(version)),
      readOnly: Number(readOnly) !== 0,
      flushing: Number(flushing),
      log: Number(hasLog) === 0 ? undefined : String(log),
      connections: { used: Number(used), most: Number(most) },
      clockAheadMs,
      hears: await hears(examined),
    }
  } catch (error) {
    throw fault(error)
  }
}

async function ask({ wire, clock }: Examined, sql: string): Promise<Rows> {
  const deadline = new CallLimits(clock).deadline(LIMIT_MS)
  try {
    return (await wire.ask(sql, deadline))[0] ?? []
  } finally {
    deadline.end()
  }
}

/** Some servers put `5.5.5-` before their version, for very old replicas. */
function numberOf(version: string): number {
  const [, major, minor, patch] = /^(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)/.exec(version) ?? []
  return Number(major) * 10_000 + Number(minor) * 100 + Number(patch)
}

/** Whether the connection that sleeps under our name wakes when it is told to. */
async function hears(examined: Examined): Promise<boolean | undefined> {
  const { wire, listens, names, clock, client } = examined
  const { connect } = wire
  if (!listens || connect === undefined) return undefined
  const wake = (): Promise<Rows> => ask(examined, renamed(`CALL \`holdfast_wake\`('${client}')`, names))
  const ear = new Ear({ connect, clock, names, client, make: async () => undefined, wake, news: () => undefined })
  await ear.open()
  try {
    const until = clock.now() + WAKE_MS
    while (ear.wakes === 0 && clock.now() < until) {
      await wake()
      await new Promise<void>((resolve) => {
        clock.timer(LOOK_EVERY_MS, resolve)
      })
    }
    return ear.wakes > 0
  } finally {
    ear.close()
  }
}
