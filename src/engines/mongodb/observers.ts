/**
 * Observers of lines, who have no entry in them: one change stream for all lines that this engine object observes. It
 * tells every change, also a renewal: an observer looks then. Another line is another filter, so the stream is opened
 * anew with the first observer of a line; it ends with the last observer.
 */
import type { MongodbCollection } from '../../clients/mongodb/collection.ts'
import { ENGINE } from '../../clients/mongodb/errors.ts'
import type { Clock } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'
import { type ChangeEvent, MongodbChangeStream } from './change-stream.ts'

export class MongodbObservers {
  readonly #collection: MongodbCollection
  readonly #clock: Clock
  readonly #listeners = new Map<string, Set<() => void>>()
  #stream: MongodbChangeStream | undefined
  #opened: Promise<void> | undefined

  constructor(collection: MongodbCollection, clock: Clock) {
    this.#collection = collection
    this.#clock = clock
  }

  /** Rejects where there are no change streams: then the observer looks now and then. */
  async add(key: string, listener: () => void): Promise<AsyncDisposable> {
    const ring = (): void => listener()
    const others = this.#listeners.get(key)
    this.#listeners.set(key, (others ?? new Set()).add(ring))
    const stop = async (): Promise<void> => await this.#remove(key, ring)
    try {
      if (others === undefined || this.#opened === undefined) this.#opened = this.#open()
      await this.#opened
    } catch (error) {
      await stop()
      throw error
    }
    return { [Symbol.asyncDispose]: stop }
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    await this.#end()
  }

  async #open(): Promise<void> {
    const keys = [...this.#listeners.keys()]
    const stages = [{ $match: { 'documentKey._id': { $in: keys } } }, { $project: { documentKey: 1 } }]
    const stream = new MongodbChangeStream({
      ...{ collection: this.#collection, clock: this.#clock, stages },
      hear: (event) => this.#hear(event),
      gap: () => this.#ringAll(),
    })
    const before = this.#stream
    this.#stream = stream
    try {
      await stream.open()
      if (stream.unsupported) throw noChangeStreams('there are none here')
    } catch (error) {
      await stream.close()
      if (this.#stream !== stream) await before?.close()
      else {
        this.#stream = before
        this.#opened = undefined
      }
      throw error
    }
    // Until now, it has told of the other lines.
    await before?.close()
  }

  async #end(): Promise<void> {
    const before = this.#stream
    this.#stream = undefined
    this.#opened = undefined
    await before?.close()
  }

  async #remove(key: string, ring: () => void): Promise<void> {
    const listeners = this.#listeners.get(key)
    if (listeners?.delete(ring) !== true || listeners.size > 0) return
    this.#listeners.delete(key)
    if (this.#listeners.size === 0) await this.#end()
  }

  #hear({ documentKey }: ChangeEvent): void {
    for (const ring of this.#listeners.get(String(documentKey?._id)) ?? []) ring()
  }

  #ringAll(): void {
    for (const listeners of this.#listeners.values()) for (const ring of listeners) ring()
  }
}

/** Then the observer looks now and then. */
export function noChangeStreams(why: string): EngineError {
  return new EngineError(ENGINE, `no change stream: ${why}`, { outcome: 'not-applied', transient: false })
}
