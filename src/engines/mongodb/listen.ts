/**
 * How a waiter hears that it holds: by a change stream, one for each engine object, whose filter runs on the server.
 * What may have been missed is a `gap`: the core asks where its waiters stand.
 *
 * Where there is no stream, waiters poll: see shared/recheck-timer.ts.
 */
import type { MongodbCollection } from '../../clients/mongodb/collection.ts'
import type { Clock } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import { type ChangeEvent, MongodbChangeStream } from './change-stream.ts'
import { newsIn, newsPattern } from './codec.ts'

export interface MongodbListening {
  readonly collection: MongodbCollection
  readonly clock: Clock
  /** The engine object that the news are for. */
  readonly engineId: string
  readonly news: (news: News) => void
  /** The collection was dropped or renamed. */
  readonly gone: () => void
}

export function newsStream({ collection, clock, engineId, news, gone }: MongodbListening): MongodbChangeStream {
  const hear = ({ documentKey, updateDescription, fullDocument }: ChangeEvent): void => {
    // A small document comes whole, a large one as the difference.
    const text = updateDescription?.updatedFields?.news ?? fullDocument?.news
    const key = documentKey?._id
    if (typeof text !== 'string' || typeof key !== 'string') return
    for (const each of newsIn(key, text, engineId)) news(each)
  }
  return new MongodbChangeStream({
    collection,
    clock,
    stages: newsStages(engineId),
    hear,
    gap: () => news({ gap: true }),
    gone,
  })
}

/** Only news for this engine object pass, on the server; and of the event no more than needed. */
function newsStages(engineId: string): readonly object[] {
  const isOurs = { $regex: newsPattern(engineId) }
  return [
    { $match: { $or: [{ 'updateDescription.updatedFields.news': isOurs }, { 'fullDocument.news': isOurs }] } },
    { $project: { documentKey: 1, 'updateDescription.updatedFields.news': 1, 'fullDocument.news': 1 } },
  ]
}
