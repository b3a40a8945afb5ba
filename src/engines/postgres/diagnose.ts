/** What `holdfast doctor` wants to know of a server: facts that decide what locks on it are worth. */

import { fault } from '../../clients/postgres/errors.ts'
import type { PostgresWire } from '../../clients/postgres/wire.ts'
import type { Clock } from '../../core/clock.ts'

export interface Diagnosis {
  /** As the server says it: `15.14 (Debian ...)`. */
  readonly version: string
  /** The same as a number: 150014. */
  readonly versionNumber: number
  /** It follows another server, and refuses writes. */
  readonly replica: boolean
  /** Settings that decide what survives a crash. */
  readonly fsync: boolean
  readonly fullPageWrites: boolean
  readonly synchronousCommit: string
  readonly isolation: string
  readonly encoding: string
  readonly connections: { readonly used: number; readonly most: number }
  /** How far the server's clock is ahead of ours, as far as one question can tell. */
  readonly clockAheadMs: number
  /** Whether a notification arrives. Undefined: this engine does not listen, or the server does not let it. */
  readonly hears: boolean | undefined
}

const FACTS = `SELECT json_build_object(
  'version', current_setting('server_version'),
  'versionNumber', current_setting('server_version_num')::int,
  'replica', pg_is_in_recovery(),
  'fsync', current_setting('fsync')::boolean,
  'fullPageWrites', current_setting('full_page_writes')::boolean,
  'synchronousCommit', current_setting('synchronous_commit'),
  'isolation', current_setting('default_transaction_isolation'),
  'encoding', current_setting('server_encoding'),
  'connections', json_build_object('used', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    'most', current_setting('max_connections')::int),
  'nowMs', extract(epoch FROM clock_timestamp()) * 1000)::text`

const LIMIT_MS = 5000
/** A notification takes a millisecond; one that takes this long does not come. */
const POST_MS = 1000

export interface Examined {
  readonly wire: PostgresWire
  readonly listen: PostgresWire['listen']
  readonly clock: Clock
  /** A channel that nobody else has. */
  readonly channel: string
  /** The wall clock, now. */
  readonly wallMs: () => number
}

export async function diagnose(examined: Examined): Promise<Diagnosis> {
  const { wallMs } = examined
  try {
    const askedAt = wallMs()
    const { nowMs, ...facts } = JSON.parse(String(await ask(examined, FACTS))) as Omit<
      Diagnosis,
      'clockAheadMs' | 'hears'
    > & {
      nowMs: number
    }
    const clockAheadMs = nowMs - (askedAt + wallMs()) / 2
    // A replica refuses to listen, too.
    return { ...facts, clockAheadMs, hears: facts.replica ? undefined : await hears(examined) }
  } catch (error) {
    throw fault(error)
  }
}

function ask({ wire }: Examined, text: string, ...values: readonly string[]): Promise<unknown> {
  return wire.ask(text, values, { connectMs: LIMIT_MS, answerMs: LIMIT_MS })
}

async function hears(examined: Examined): Promise<boolean | undefined> {
  const { listen, channel, clock } = examined
  if (listen === undefined) return undefined
  let arrived: (message: boolean) => void = () => undefined
  const answer = new Promise<boolean>((resolve) => {
    arrived = resolve
  })
  const ear = await listen(channel, { message: () => arrived(true), gap: () => undefined })
  try {
    await ask(examined, 'SELECT pg_notify($1::text, $2::text)::text', channel, '')
    const limit = clock.timer(POST_MS, () => arrived(false))
    const heard = await answer
    limit.cancel()
    return heard
  } finally {
    await ear.close()
  }
}
