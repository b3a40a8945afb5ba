/** Finding lines, by SCAN: on every server, page by page, so that no server is stopped for long. */
import { asEngineError } from '../../clients/redis/errors.ts'
import { globEscape } from '../../clients/redis/names.ts'
import { pages } from '../../clients/redis/scan.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { entriesPatterns, lineOfEntries } from './names.ts'

/** How the value of a lock of ours begins; see lua/line.lua. */
const OURS = new Set(['hf1:', 'hf1+'])

/** The server key of every line whose server key begins with `prefix`, each once, in pages. */
export async function* linesIn(wire: RedisWire, prefix: string): AsyncIterable<readonly string[]> {
  const seen = new Set<string>()
  const fresh = (serverKey: string | undefined): serverKey is string => {
    if (serverKey === undefined || !serverKey.startsWith(prefix) || seen.has(serverKey)) return false
    seen.add(serverKey)
    return true
  }
  for (const server of await wire.servers()) {
    for (const pattern of entriesPatterns(prefix, wire)) {
      for await (const names of pages(server, pattern, 'hash'))
        yield names.map((name) => lineOfEntries(name, wire)).filter(fresh)
    }
    for await (const names of pages(server, `${globEscape(prefix)}*`, 'string')) {
      const values = await Promise.all(names.map((serverKey) => beginning(wire, serverKey)))
      yield names.filter((_, index) => OURS.has(values[index] ?? '')).filter(fresh)
    }
  }
}

/** How the value at that key begins; enough to tell a lock of ours. */
async function beginning(wire: RedisWire, serverKey: string): Promise<string> {
  const key = serverKey.slice(wire.keyPrefix.length)
  try {
    return String(await wire.send('GETRANGE', [key, '0', '3'], key))
  } catch (error) {
    throw asEngineError(error)
  }
}
