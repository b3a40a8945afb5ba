/** Looking at lines: the entries of one (`inspect`), and which lines there are (`list`). */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { Line, LineEntry, LineSummary } from '../../core/engine.ts'
import type { ClassSession, ZooKeeperContext } from './class-session.ts'
import { readEntryData, shownEntries, tokenOf, type ZooKeeperLine } from './codec.ts'
import type { NamedEntry } from './names.ts'

/** How many lines are read at once. */
const LINES_AT_ONCE = 100

export async function inspectLine({ names }: ZooKeeperContext, session: ClassSession, key: string): Promise<Line> {
  const view = await session.lines.readNow(key)
  if (view === undefined) return { key, entries: [] }
  const entries = await Promise.all(
    shownEntries(view).map(async (entry, place): Promise<LineEntry | undefined> => {
      try {
        const { data, stat } = await session.zk.getData(names.entry(key, entry.name))
        const stored = readEntryData(data)
        const ttlMs = stored.ttlMs || session.zk.timeoutMs
        return {
          ...shown(entry),
          holder: stored.holder,
          state: place < view.held ? 'held' : 'waiting',
          token: tokenOf(stored, stat),
          ttlMs,
          // Only the leader of the ensemble knows.
          remainingMs: ttlMs,
          ageMs: null,
          heldMs: null,
          ...(stored.evicted ? { evicted: true } : {}),
        }
      } catch (error) {
        // It has gone since the line was read.
        if (hasCode(error, 'noNode')) return undefined
        throw error
      }
    }),
  )
  return { key, entries: entries.filter((entry) => entry !== undefined) }
}

function shown({ id, weight, limit }: NamedEntry): Pick<LineEntry, 'id' | 'weight' | 'limit'> {
  return { id, weight, limit }
}

export async function* listLines(
  { names }: ZooKeeperContext,
  session: ClassSession,
  prefix: string,
  onProgress: (() => void) | undefined,
): AsyncIterable<LineSummary> {
  await session.zk.confirm()
  const found = await session.zk.getChildren(names.base).catch((error: unknown) => {
    if (hasCode(error, 'noNode')) return []
    throw error
  })
  const keys = found.map((name) => names.keyOf(name)).filter((key) => key.startsWith(prefix))
  for (let from = 0; from < keys.length; from += LINES_AT_ONCE) {
    const some = keys.slice(from, from + LINES_AT_ONCE)
    for (const [key, line] of await session.lines.readAll(some)) {
      if ('error' in line) throw line.error
      if (line.value !== undefined && line.value.entries.length > 0) yield summaryOf(key, line.value)
    }
    onProgress?.()
  }
}

function summaryOf(key: string, view: ZooKeeperLine): LineSummary {
  return { key, held: view.held, waiting: shownEntries(view).length - view.held }
}
