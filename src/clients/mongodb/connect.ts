/** From a URL to a client of our own: of the package mongodb, loaded when it is asked for, and told not to wait. */
import { EngineError } from '../../core/errors.ts'
import { loadClient } from '../shared/packages.ts'
import type { MongodbClient } from './wire.ts'

/**
 * What we ask for, unless the URL says something else. A call of ours is over after some seconds; what the driver would
 * wait for longer comes too late. A primary that stands still is noticed after `heartbeatFrequencyMS` and
 * `connectTimeoutMS`.
 */
const OUR_SETTINGS: Readonly<Record<string, string | number>> = {
  appName: 'holdfast',
  maxPoolSize: 20,
  serverSelectionTimeoutMS: 3000,
  connectTimeoutMS: 3000,
  heartbeatFrequencyMS: 2000,
  // How soon a server that could not be reached is tried again while a call waits for it.
  minHeartbeatFrequencyMS: 100,
  waitQueueTimeoutMS: 3000,
  // Longer than any call, and than a change stream without events is silent.
  socketTimeoutMS: 15_000,
}

/** What a URL says besides what the driver takes. */
export interface MongodbUrlOptions {
  readonly collection?: string
}

/** The options of ours that a URL has, and the URL without them. */
export function splitMongodbUrl(url: string): { readonly url: string; readonly options: MongodbUrlOptions } {
  const [address = '', query = ''] = url.split(/\?(.*)/s)
  const pairs = query.split('&').filter((pair) => pair !== '')
  const isOurs = (pair: string): boolean => pair.startsWith('collection=')
  const ours = pairs.find(isOurs)
  const rest = pairs.filter((pair) => !isOurs(pair))
  // The driver wants a slash between the hosts and the query.
  const path = /^[a-z+]+:\/\/[^/]*$/i.test(address) && rest.length > 0 ? `${address}/` : address
  const options = ours === undefined ? {} : { collection: decodeURIComponent(ours.slice('collection='.length)) }
  return { url: rest.length === 0 ? path : `${path}?${rest.join('&')}`, options }
}

/** A client that connects when it is first used. */
export async function mongodbClientAt(url: string): Promise<MongodbClient> {
  const { MongoClient } = await loadClient('mongodb', 'mongodb', () => import('mongodb'))
  const query = /\?(.*)$/s.exec(url)?.[1] ?? ''
  const said = new Set(query.split('&').map((pair) => pair.split('=')[0]?.toLowerCase()))
  const settings = Object.entries(OUR_SETTINGS).filter(([name]) => !said.has(name.toLowerCase()))
  try {
    return new MongoClient(url, Object.fromEntries(settings)) as unknown as MongodbClient
  } catch (error) {
    // The driver quotes what it cannot read, and that may be a part of a password; but not where it names an option.
    const { message } = error as Error
    const why = /^options? /i.test(message) && !message.includes('@') ? `: ${message}` : ''
    const shape = 'mongodb://user:password@host1:27017,host2/database?replicaSet=name'
    throw new EngineError('mongodb', `a URL is ${shape}, percent-encoded; the driver cannot read this one${why}`, {
      outcome: 'not-applied',
      transient: false,
    })
  }
}
