/**
 * From a URL to the engine, on clients that we make:
 *
 *     redlock://user:password@host1:6379,host2:6379,host3:6379/0?prefix=lock:&timeout=50
 *
 * with the options of a redis URL (`prefix`, `tls`, `ca`), and `timeout`, how long a silent server is waited for (ms).
 * User, password and database are those of all servers.
 */
import type { Redis } from 'ioredis'
import { loadEvalsha, makeClient } from '../../clients/redis/connect.ts'
import { IoredisWire } from '../../clients/redis/ioredis.ts'
import { parseUrl } from '../../clients/redis/url.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type { RedlockEngine } from './engine.ts'
import { checkCount, engineOn, type RedlockCommonOptions } from './setup.ts'

const SCHEMES = { redlock: { kind: 'server', several: true } } as const

/** The engine behind a URL. It connects by itself, and closes its connections when it is closed. */
export async function openRedlock(url: string, options: RedlockCommonOptions = {}): Promise<RedlockEngine> {
  const { url: plain, timeoutMs } = withoutTimeout(url)
  const { hosts, ...target } = parseUrl(plain, SCHEMES)
  checkCount(hosts.length)
  if (new Set(hosts.map(({ host, port }) => `${host}:${port}`)).size < hosts.length)
    throw new RangeError('a redlock URL names different servers; one of them is there twice')
  if (target.replicas !== undefined)
    throw new TypeError("unknown option 'replicas' in a redlock URL: the servers have none")
  const evalsha = await loadEvalsha()
  const clients = await Promise.all(
    hosts.map(async (host) => (await makeClient({ ...target, kind: 'server', hosts: [host] })) as Redis),
  )
  const inUrl: RedlockCommonOptions = {
    ...(target.prefix === undefined ? {} : { prefix: target.prefix }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  }
  try {
    const wire = (client: Redis, clock: Clock): RedisWire =>
      new IoredisWire(client, clock, { owned: true, evalsha: (words) => evalsha(client, words) })
    return engineOn((clock) => clients.map((client) => wire(client, clock)), clients.length, { ...inUrl, ...options })
  } catch (error) {
    for (const client of clients) client.disconnect()
    throw error
  }
}

/** The one option that is ours. */
function withoutTimeout(url: string): { readonly url: string; readonly timeoutMs: number | undefined } {
  const found = /([?&])timeout=([^&#]*)(&?)/.exec(url)
  if (found === null) return { url, timeoutMs: undefined }
  const [whole, before, text = '', after] = found
  if (!/^\d+$/.test(text)) throw new TypeError(`timeout in a redlock URL is a number of milliseconds; got '${text}'`)
  return { url: url.replace(whole, after === '' ? '' : (before ?? '')), timeoutMs: Number(text) }
}
