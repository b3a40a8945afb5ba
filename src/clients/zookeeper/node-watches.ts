/** Which nodes a session watches, so that a new connection can set its watches again. A watch tells once. */
import { setWatchesMessage } from './messages.ts'

/** `data`: of a node that exists. `exist`: of one that does not. `child`: of its children. */
export type WatchKind = 'data' | 'exist' | 'child'

const KINDS: readonly WatchKind[] = ['data', 'exist', 'child']
/** A path of ours has 2,500 bytes at most, beside that of the chroot: so a message stays well below 1 MiB. */
const WATCHES_AT_ONCE = 200

export class NodeWatches {
  readonly #paths: Readonly<Record<WatchKind, Set<string>>> = { data: new Set(), exist: new Set(), child: new Set() }

  add(kind: WatchKind, path: string): void {
    this.#paths[kind].add(path)
  }

  /** Something was told of this node. */
  told(path: string): void {
    for (const kind of KINDS) this.#paths[kind].delete(path)
  }

  /** What sets all of them again. The server tells at once what has happened since `lastZxid`. */
  messages(lastZxid: bigint, full: (path: string) => string): readonly Buffer[] {
    const all = KINDS.flatMap((kind) => [...this.#paths[kind]].map((path) => ({ kind, path: full(path) })))
    const messages: Buffer[] = []
    for (let from = 0; from < all.length; from += WATCHES_AT_ONCE) {
      const some = all.slice(from, from + WATCHES_AT_ONCE)
      const of = (kind: WatchKind): string[] => some.filter((one) => one.kind === kind).map(({ path }) => path)
      messages.push(setWatchesMessage(lastZxid, { data: of('data'), exist: of('exist'), child: of('child') }))
    }
    return messages
  }
}
