/** Finding lines: on every server that can be asked, since one that was away may have missed some. */

import { globEscape } from '../../clients/redis/names.ts'
import { pages } from '../../clients/redis/scan.ts'
import type { ServerNode } from './server.ts'

const QUEUE = 'hf1:redlock:queue:{'
const OURS = 'hfr1:'

/** The keys that begin with `prefix`, each once, in pages. */
export async function* keysIn(nodes: readonly ServerNode[], prefix: string): AsyncIterable<readonly string[]> {
  const seen = new Set<string>()
  const fresh = (key: string): boolean => key.startsWith(prefix) && !seen.has(key) && seen.add(key) !== undefined
  for (const { wire, names } of nodes.filter(({ ready }) => ready)) {
    const begin = names.serverKey(prefix)
    for (const server of await wire.servers()) {
      for await (const queues of pages(server, `${globEscape(QUEUE + begin)}*`, 'zset')) {
        yield queues.map((queue) => names.userKey(queue.slice(QUEUE.length, -1))).filter(fresh)
      }
      for await (const Ks of pages(server, `${globEscape(begin)}*`, 'string')) {
        const values = await Promise.all(
          Ks.map((K) => wire.send('GETRANGE', [K.slice(wire.keyPrefix.length), '0', '4'])),
        )
        yield Ks.filter((_, index) => values[index] === OURS)
          .map((K) => names.userKey(K))
          .filter(fresh)
      }
    }
  }
}
