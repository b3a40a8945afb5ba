/**
 * Documents in the memory of this process, changed by update pipelines that `mingo` evaluates: enough of MongoDB to
 * compare the pipelines with the memory engine, without a server.
 */
import { Aggregator } from 'mingo'
import type { UpdatePipeline } from '../../src/engines/mongodb/settling.ts'

export type Stored = Record<string, unknown> & { readonly _id: string }

export class MingoLines {
  readonly documents: Map<string, Stored> = new Map()

  /** As `findOneAndUpdate`, answering the document as it is after the change. */
  change(key: string, pipeline: UpdatePipeline, { upsert }: { readonly upsert: boolean }): Stored | undefined {
    const before = this.documents.get(key) ?? (upsert ? { _id: key } : undefined)
    if (before === undefined) return undefined
    const [after] = new Aggregator(pipeline as never).run<Stored>([structuredClone(before)])
    if (after === undefined) throw new Error('a pipeline that leaves no document')
    this.documents.set(key, structuredClone(after))
    return after
  }
}
