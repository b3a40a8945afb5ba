/** Finding lines, by SCAN: on every server, page by page, so that none is stopped for long. */

import { entriesPatterns, globEscape, lineOfEntries } from '../../engines/redis/names.ts'
import { fault } from './errors.ts'
import type { RedisWire, Server } from './wire.ts'

/** How the value of a lock of ours begins; see lua/line.lua. */
const OURS = new Set(['hf1:', 'hf1+'])
/** How many keys a server looks at in one go. */
const AT_ONCE = '500'

/** The K of every line whose K begins with `prefix`, each once, in pages. */
export async function* linesIn(wire: RedisWire, prefix: string): AsyncIterable<readonly string[]> {
  const seen = new Set<string>()
  const fresh = (K: string | undefined): K is string => {
    if (K === undefined || !K.startsWith(prefix) || seen.has(K)) return false
    seen.add(K)
    return true
  }
  for (const server of await wire.servers()) {
    for (const pattern of entriesPatterns(prefix, wire)) {
      for await (const names of pages(server, pattern, 'hash'))
        yield names.map((name) => lineOfEntries(name, wire)).filter(fresh)
    }
    for await (const names of pages(server, `${globEscape(prefix)}*`, 'string')) {
      const values = await Promise.all(names.map((K) => beginning(wire, K)))
      yield names.filter((_, index) => OURS.has(values[index] ?? '')).filter(fresh)
    }
  }
}

/** What SCAN finds. It may find a key twice, and may or may not find keys that come or go meanwhile. */
export async function* pages(server: Server, pattern: string, type: string): AsyncIterable<readonly string[]> {
  let cursor = '0'
  do {
    const reply = await server
      .send('SCAN', [cursor, 'MATCH', pattern, 'COUNT', AT_ONCE, 'TYPE', type])
      .catch((error: unknown) => {
        throw fault(error)
      })
    const [next, names] = reply as [unknown, readonly unknown[]]
    yield names.map(String)
    cursor = String(next)
  } while (cursor !== '0')
}

/** How the value at K begins; enough to tell a lock of ours. */
async function beginning(wire: RedisWire, K: string): Promise<string> {
  const key = K.slice(wire.keyPrefix.length)
  try {
    return String(await wire.send('GETRANGE', [key, '0', '3'], key))
  } catch (error) {
    throw fault(error)
  }
}
