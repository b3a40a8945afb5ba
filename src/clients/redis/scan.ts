/** Finding keys, by SCAN: page by page, so that no server is stopped for long. */
import { asEngineError } from './errors.ts'
import type { Server } from './wire.ts'

/** How many keys a server looks at in one go: about a millisecond of its time. */
const AT_ONCE = '1000'

/** What SCAN finds. It may find a key twice, and may or may not find keys that come or go meanwhile. */
export async function* pages(server: Server, pattern: string, type: string): AsyncIterable<readonly string[]> {
  let cursor = '0'
  do {
    const reply = await server
      .send('SCAN', [cursor, 'MATCH', pattern, 'COUNT', AT_ONCE, 'TYPE', type])
      .catch((error: unknown) => {
        throw asEngineError(error)
      })
    const [next, names] = reply as [unknown, readonly unknown[]]
    yield names.map(String)
    cursor = String(next)
  } while (cursor !== '0')
}
