/**
 * A change stream that is opened anew by itself.
 *
 * It is asked by commands of our own (`aggregate`, and then `getMore` again and again), and not by `watch()` of the
 * driver. That one opens a new stream by itself when the primary has gone, and then waits for as long as it waits for
 * any server: half a minute without an event and without an error, by default. Here a stream that fails, that is
 * silent, or whose primary is not the primary any more is given up at once, and a new one is opened; both are told as
 * a gap.
 *
 * A stand-alone server has no change streams. There this stays `deaf`.
 */
import type { MongodbCollection } from '../../clients/mongodb/collection.ts'
import { mongodbCodeOf, NO_CHANGE_STREAMS } from '../../clients/mongodb/errors.ts'
import type { MongodbDocument, MongodbSession } from '../../clients/mongodb/wire.ts'
import { NotSent } from '../../clients/shared/driver-errors.ts'
import { RetryPause } from '../../clients/shared/retry-pause.ts'
import type { Clock, Timer } from '../../core/clock.ts'

/** How long the server waits for an event before it answers that there is none. */
const AWAIT_MS = 3000
/** How much later than that an answer may come. */
const SILENT_MS = 2000
const OPEN_MS = 10_000
const KILL_MS = 500

export interface MongodbChangeStreamOptions {
  readonly collection: MongodbCollection
  readonly clock: Clock
  /** What of the events is wanted: stages that run on the server. */
  readonly stages: readonly object[]
  readonly hear: (event: ChangeEvent) => void
  /** Events may have been missed. */
  readonly gap: () => void
  /** The collection was dropped or renamed, with its indexes: the next one of its name has none. */
  readonly gone?: () => void
}

/** A change stream that is open. */
interface OpenStream {
  readonly session: MongodbSession
  /** As the server has named its cursor. */
  readonly cursor: unknown
}

interface CursorReply {
  readonly id: unknown
  readonly firstBatch?: readonly ChangeEvent[]
  readonly nextBatch?: readonly ChangeEvent[]
}

/** An event, as far as it was asked for. */
export interface ChangeEvent {
  readonly documentKey?: { readonly _id?: unknown }
  readonly updateDescription?: { readonly updatedFields?: { readonly news?: unknown } }
  readonly fullDocument?: { readonly news?: unknown }
}

export class MongodbChangeStream {
  readonly #options: MongodbChangeStreamOptions
  readonly #retryPause = new RetryPause({ firstMs: 20, longestMs: 2000 })
  #stream: OpenStream | undefined
  #retry: Timer | undefined
  #openedAt = Number.NEGATIVE_INFINITY
  #opening = false
  #closed = false
  #primary: string | undefined
  /** No news can come: there is no stream, now or ever. */
  deaf = true
  /** The server has said that it has no change streams. */
  unsupported = false

  constructor(options: MongodbChangeStreamOptions) {
    this.#options = options
    const { events } = options.collection
    events.on('topologyDescriptionChanged', this.#onTopology)
    events.on('connectionPoolCleared', this.#onPoolCleared)
  }

  /** Rejects if the server cannot be reached. If it has no stream to give, this is deaf, for now or for good. */
  async open(): Promise<void> {
    try {
      await this.#open()
    } catch (error) {
      if (error instanceof NotSent) throw error
      this.#tryAgain(error)
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#retry?.cancel()
    const { events } = this.#options.collection
    events.off('topologyDescriptionChanged', this.#onTopology)
    events.off('connectionPoolCleared', this.#onPoolCleared)
    const stream = this.#stream
    this.#stream = undefined
    this.deaf = true
    if (stream !== undefined) await this.#end(stream)
  }

  async #open(): Promise<void> {
    const { collection, stages } = this.#options
    const session = collection.client.startSession({ causalConsistency: false })
    this.#opening = true
    try {
      const pipeline = [{ $changeStream: {} }, ...stages]
      const reply = await collection.command({ aggregate: collection.name, pipeline, cursor: {} }, OPEN_MS, session)
      const { id, firstBatch } = reply.cursor as CursorReply
      const stream = { session, cursor: id }
      if (this.#closed) return await this.#end(stream)
      this.#stream = stream
      this.deaf = false
      this.#openedAt = this.#options.clock.now()
      this.#hear(firstBatch)
      void this.#listen(stream)
    } catch (error) {
      void session.endSession().catch(() => undefined)
      throw error
    } finally {
      this.#opening = false
    }
  }

  /** Ask for events until the stream ends, or another one has taken its place. */
  async #listen(stream: OpenStream): Promise<void> {
    const { collection } = this.#options
    const getMore = { getMore: stream.cursor, collection: collection.name, maxTimeMS: AWAIT_MS }
    try {
      while (this.#stream === stream) {
        const reply = await collection.command(getMore, AWAIT_MS + SILENT_MS, stream.session)
        const { id, nextBatch } = reply.cursor as CursorReply
        this.#hear(nextBatch)
        if (String(id) !== '0') continue
        // The stream has told all that it will ever tell.
        this.#options.gone?.()
        break
      }
    } catch {
      // It has ended, whatever the reason.
    }
    if (this.#stream === stream) this.#lost()
    void stream.session.endSession().catch(() => undefined)
  }

  #hear(events: readonly ChangeEvent[] = []): void {
    for (const event of events) this.#options.hear(event)
  }

  /** What may have been missed is a gap; and again when there is a new stream. */
  #lost(): void {
    const stream = this.#stream
    this.#stream = undefined
    this.deaf = true
    if (this.#closed) return
    // One that ends as soon as it is open, again and again, would have all waiters ask at each turn.
    if (this.#options.clock.now() - this.#openedAt > this.#retryPause.longestMs) this.#retryPause.reset()
    if (stream !== undefined) void this.#kill(stream)
    this.#options.gap()
    this.#tryAgain()
  }

  #tryAgain(error?: unknown): void {
    if (NO_CHANGE_STREAMS.has(mongodbCodeOf(error) ?? 0)) this.unsupported = true
    if (this.#closed || this.unsupported || this.#opening) return
    this.#retry?.cancel()
    this.#retry = this.#options.clock.timer(this.#retryPause.next(), () => {
      this.#open().then(
        () => this.#options.gap(),
        (again) => this.#tryAgain(again),
      )
    })
  }

  async #end(stream: OpenStream): Promise<void> {
    await this.#kill(stream)
    await stream.session.endSession().catch(() => undefined)
  }

  /** Else the server keeps the cursor, and a connection waits for its next event. */
  async #kill({ cursor }: OpenStream): Promise<void> {
    const { collection } = this.#options
    await collection.command({ killCursors: collection.name, cursors: [cursor] }, KILL_MS).catch(() => undefined)
  }

  /** An open stream belongs to the primary that it was opened on. */
  readonly #onTopology = (event: MongodbDocument): void => {
    const primary = primaryIn(event.newDescription)
    const before = this.#primary ?? primaryIn(event.previousDescription)
    this.#primary = primary
    if (before !== undefined && primary !== before && this.#stream !== undefined) this.#lost()
  }

  /** The driver has given up on a server, and on all connections to it. */
  readonly #onPoolCleared = (event: MongodbDocument): void => {
    const isPrimary = this.#primary === undefined || event.address === this.#primary
    if (isPrimary && this.#stream !== undefined) this.#lost()
  }
}

/** The address of the primary; undefined if there is none, or if the deployment is no replica set. */
function primaryIn(description: unknown): string | undefined {
  const { servers } = (description ?? {}) as { servers?: ReadonlyMap<string, { readonly type?: unknown }> }
  for (const [address, { type }] of servers ?? []) if (type === 'RSPrimary') return address
  return undefined
}
