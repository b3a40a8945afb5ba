/** Reading lines: from the names of the children of a node to who holds. */
import { hasCode, type ZooKeeperError } from '../../clients/zookeeper/errors.ts'
import type { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import { readEntryData, tokenOf, toZooKeeperLine, type ZooKeeperLine } from './codec.ts'
import { isBeyondNumbers, type NamedLine, type ZooKeeperNames } from './names.ts'
import { inGroups, type Settled, settled } from './request-results.ts'

/** Undefined: the line has no node. */
export type MaybeLine = ZooKeeperLine | undefined

export class LineReader {
  readonly #zk: ZooKeeperSession
  readonly #names: ZooKeeperNames

  constructor(zk: ZooKeeperSession, names: ZooKeeperNames) {
    this.#zk = zk
    this.#names = names
  }

  /** The line, as the server that we are connected to knows it. */
  async read(key: string): Promise<MaybeLine> {
    try {
      return await this.#view(key, await this.#zk.getChildren(this.#names.line(key)))
    } catch (error) {
      if (hasCode(error, 'noNode')) return undefined
      throw error
    }
  }

  /** The line, no older than anything that was done before this call. */
  async readNow(key: string): Promise<MaybeLine> {
    const confirmed = this.#zk.confirm()
    const reading = this.read(key)
    reading.catch(() => {})
    await confirmed
    return await reading
  }

  /** Several lines, in one request. Never rejects. */
  async readAll(keys: readonly string[]): Promise<ReadonlyMap<string, Settled<MaybeLine>>> {
    const [only] = keys
    if (only === undefined) return new Map()
    if (keys.length === 1) return new Map([[only, await settled(this.read(only))]])
    const groups = await Promise.all(inGroups(keys).map((group) => this.#readGroup(group)))
    return new Map(groups.flat())
  }

  async #readGroup(keys: readonly string[]): Promise<readonly (readonly [string, Settled<MaybeLine>])[]> {
    const listed = await settled(this.#zk.getChildrenOfAll(keys.map((key) => this.#names.line(key))))
    if ('error' in listed) return keys.map((key) => [key, listed])
    return await Promise.all(
      keys.map(async (key, index) => {
        const children = listed.value[index] as readonly string[] | ZooKeeperError
        if (!(children instanceof Error)) return [key, await settled(this.#view(key, children))] as const
        return [key, hasCode(children, 'noNode') ? { value: undefined } : { error: children }] as const
      }),
    )
  }

  async #view(key: string, children: readonly string[]): Promise<ZooKeeperLine> {
    const line = this.#names.readLine(key, children)
    return toZooKeeperLine(line.entries.some(isBeyondNumbers) ? await this.#byToken(key, line) : line)
  }

  /** The same line, in the order of its tokens, which the nodes themselves have to tell. */
  async #byToken(key: string, { entries, evicted }: NamedLine): Promise<NamedLine> {
    const found = await Promise.all(
      entries.map(async (entry) => {
        try {
          const { data, stat } = await this.#zk.getData(this.#names.entry(key, entry.name))
          return [{ entry, token: tokenOf(readEntryData(data), stat) }]
        } catch (error) {
          // It has gone since the line was read.
          if (hasCode(error, 'noNode')) return []
          throw error
        }
      }),
    )
    const sorted = found.flat().sort((one, other) => (one.token < other.token ? -1 : 1))
    return { entries: sorted.map(({ entry }) => entry), evicted }
  }
}
