/**
 * What `holdfast doctor` says of a MariaDB or MySQL server: which one it is, whether it keeps what it says, and whether
 * waiters can be woken.
 */

import { isMissing } from '../../clients/mysql/errors.ts'
import type { MysqlWire, ResultRows } from '../../clients/mysql/wire.ts'
import { CallLimits } from '../../clients/shared/call-limits.ts'
import { type Clock, wallClockMs } from '../../core/clock.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { isAtLeast } from '../../core/version-number.ts'
import { clockSkew, connections } from '../shared/findings.ts'
import { asEngineError } from './errors.ts'
import { MysqlListener } from './listen.ts'
import { type MysqlNames, renamed } from './names.ts'

/** The oldest versions that know everything we ask of them: SKIP LOCKED. */
const OLDEST_MARIADB = [10, 6] as const
const OLDEST_MYSQL = [8, 0, 1] as const
const LIMIT_MS = 5000
/** To be woken takes a millisecond; a listener that takes this long is not woken. */
const WAKE_MS = 1000
const WAKE_EVERY_MS = 20

export interface ExaminedMysql {
  readonly wire: MysqlWire
  readonly listens: boolean
  readonly names: MysqlNames
  readonly clock: Clock
  /** The id of an engine that is made for this examination alone. */
  readonly engineId: string
}

const FACTS = `SELECT VERSION(), @@read_only, @@innodb_flush_log_at_trx_commit, @@log_bin, @@binlog_format,
  @@max_connections, CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR)`
const CONNECTIONS = `SHOW GLOBAL STATUS LIKE 'Threads_connected'`

export async function diagnose(examined: ExaminedMysql): Promise<readonly NamedFinding[]> {
  try {
    const askedAt = wallClockMs()
    const [[version, readOnly, flushing, hasLog, logFormat, most, nowUs] = []] = await ask(examined, FACTS)
    const clockAheadMs = Number(nowUs) / 1000 - (askedAt + wallClockMs()) / 2
    const [[, used] = []] = await ask(examined, CONNECTIONS)
    return [
      versionFinding(String(version), Number(readOnly) !== 0),
      durability(Number(flushing)),
      ...(Number(hasLog) === 0 ? [] : [binaryLog(String(logFormat))]),
      clockSkew(clockAheadMs),
      connections(Number(used), Number(most), 'renewals need one: raise max_connections'),
      ...(await waking(examined)),
    ]
  } catch (error) {
    throw asEngineError('diagnose', error)
  }
}

async function ask({ wire, clock }: ExaminedMysql, sql: string): Promise<ResultRows> {
  const deadline = new CallLimits(clock).deadline(LIMIT_MS)
  try {
    return (await wire.ask(sql, deadline))[0] ?? []
  } finally {
    deadline.end()
  }
}

/** `version` as the server says it: `10.11.14-MariaDB-0+deb12u2`. */
function versionFinding(version: string, readOnly: boolean): NamedFinding {
  const mariadb = /mariadb/i.test(version)
  const found = {
    name: 'version',
    finding: `${mariadb ? 'MariaDB' : 'MySQL'} ${version}${readOnly ? ', read-only' : ''}`,
  } as const
  if (readOnly)
    return { ...found, status: 'fail', todo: 'read_only is on, as on a replica: name the primary in the URL' }
  // Some servers put `5.5.5-` before their version, for very old replicas.
  if (isAtLeast(version.replace(/^5\.5\.5-/, ''), mariadb ? OLDEST_MARIADB : OLDEST_MYSQL))
    return { ...found, status: 'ok' }
  return { ...found, status: 'fail', todo: 'use MariaDB 10.6 or MySQL 8, or newer' }
}

/** `flushing`: innodb_flush_log_at_trx_commit. With 1, a crash of the machine loses no commit. */
function durability(flushing: number): NamedFinding {
  const found = { name: 'durability', finding: `innodb_flush_log_at_trx_commit is ${flushing}` } as const
  if (flushing === 1) return { ...found, status: 'ok' }
  const todo =
    'a crash of the machine can lose the last second, and with it locks that are held: set it to 1, unless the data ' +
    'is for tests'
  return { ...found, status: 'warn', todo }
}

function binaryLog(format: string): NamedFinding {
  const found = { name: 'binary log', finding: `binlog_format is ${format}` } as const
  if (format !== 'STATEMENT') return { ...found, status: 'ok' }
  const todo = 'transactions that are READ COMMITTED cannot be logged so: set it to ROW or MIXED'
  return { ...found, status: 'fail', todo }
}

/** Nothing, where this engine does not listen. */
async function waking(examined: ExaminedMysql): Promise<readonly NamedFinding[]> {
  const { connect } = examined.wire
  if (!examined.listens || connect === undefined) return []
  const name = 'waking'
  try {
    if (await isWoken(examined, connect))
      return [{ name, status: 'ok', finding: 'a connection that sleeps can be woken' }]
  } catch (error) {
    if (!isMissing(error)) throw error
    return [{ name, status: 'ok', finding: 'no lock has been used here yet; procedures are made with the first' }]
  }
  const todo = 'waiters poll. Is there a proxy in between, or does another user of the database wake them?'
  return [{ name, status: 'warn', finding: 'a connection that sleeps is not woken', todo }]
}

/** Whether a connection that sleeps under a name of its own wakes when it is told to. */
async function isWoken(examined: ExaminedMysql, connect: NonNullable<MysqlWire['connect']>): Promise<boolean> {
  const { names, clock, engineId } = examined
  const wake = (): Promise<ResultRows> => ask(examined, renamed(`CALL \`holdfast_wake_engines\`('${engineId}')`, names))
  const make = async (): Promise<void> => undefined
  const listener = new MysqlListener({ connect, clock, names, engineId, make, wake, news: () => undefined })
  await listener.open()
  try {
    const until = clock.now() + WAKE_MS
    while (listener.wakes === 0 && clock.now() < until) {
      await wake()
      await new Promise<void>((resolve) => {
        clock.timer(WAKE_EVERY_MS, resolve)
      })
    }
    return listener.wakes > 0
  } finally {
    listener.close()
  }
}
