/**
 * What `holdfast doctor` says of a MongoDB deployment: which one it is, what its writes are worth, whether waiters are
 * woken, whether empty lines are cleared away, and whether this user may do what locks need.
 */
import type { MongodbCollection } from '../../clients/mongodb/collection.ts'
import { asEngineError, MONGODB_CODE, mongodbCodeOf, NO_CHANGE_STREAMS } from '../../clients/mongodb/errors.ts'
import type { MongodbDocument } from '../../clients/mongodb/wire.ts'
import { wallClockMs } from '../../core/clock.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { isAtLeast } from '../../core/version-number.ts'
import { clockSkew } from '../shared/findings.ts'
import { TTL_INDEX } from './names.ts'

const LIMIT_MS = 5000
/** The first version whose update pipelines and change streams were tried. */
const OLDEST = [5, 0] as const

export interface ExaminedMongodb {
  readonly collection: MongodbCollection
  readonly listens: boolean
}

export async function diagnose({ collection, listens }: ExaminedMongodb): Promise<readonly NamedFinding[]> {
  try {
    const askedAt = wallClockMs()
    const hello = await collection.command({ hello: 1 }, LIMIT_MS)
    const halfwayMs = (askedAt + wallClockMs()) / 2
    const serverTimeMs = hello.localTime instanceof Date ? hello.localTime.getTime() : Number.NaN
    // A client that keeps to the Stable API may not ask.
    const build = await collection.command({ buildInfo: 1 }, LIMIT_MS).catch(() => undefined)
    return [
      versionFinding(build),
      deployment(hello),
      ...(await durability(collection, hello)),
      clockSkew(serverTimeMs - halfwayMs),
      await rights(collection),
      await cleaning(collection),
      ...(listens ? [await waking(collection)] : []),
    ]
  } catch (error) {
    throw asEngineError('diagnose', error)
  }
}

function versionFinding(build: MongodbDocument | undefined): NamedFinding {
  const name = 'version'
  const todo = `use MongoDB ${OLDEST.join('.')} or newer`
  if (build === undefined) {
    return { name, status: 'warn', finding: 'MongoDB, whose version may not be asked for', todo }
  }
  const version = String(build.version)
  const found = { name, finding: `MongoDB ${version}` } as const
  return isAtLeast(version, OLDEST) ? { ...found, status: 'ok' } : { ...found, status: 'fail', todo }
}

function deployment({ setName, msg, hosts, passives, primary }: MongodbDocument): NamedFinding {
  const name = 'deployment'
  if (msg === 'isdbgrid') {
    const todo = 'locks on sharded clusters are not tested: shard the collection by _id, or do not shard it'
    return { name, status: 'warn', finding: 'a sharded cluster', todo }
  }
  if (typeof setName !== 'string') {
    const todo = 'what it has not written to its disk is lost with it, and waiters poll: use a replica set'
    return { name, status: 'warn', finding: 'a stand-alone server', todo }
  }
  const count = [hosts, passives].reduce<number>((sum, list) => sum + (Array.isArray(list) ? list.length : 0), 0)
  const finding = `the replica set '${setName}' with ${count === 1 ? 'one member' : `${count} members`}`
  if (typeof primary !== 'string') return { name, status: 'fail', finding: `${finding}, and no primary` }
  if (count >= 3) return { name, status: 'ok', finding }
  const todo = 'without a majority no lock is granted: three members survive the loss of one'
  return { name, status: 'warn', finding, todo }
}

/** Whether a majority writes to its disks before it confirms: that is the default, and can be switched off. */
async function durability(
  collection: MongodbCollection,
  { setName }: MongodbDocument,
): Promise<readonly NamedFinding[]> {
  const name = 'durability'
  const ours = "locks are written with w: 'majority', whatever the client is set to"
  if (typeof setName !== 'string') return [{ name, status: 'ok', finding: ours }]
  const database = collection.client.db('admin')
  const asked = await collection.limits
    .within(database.command({ replSetGetConfig: 1 }, { readPreference: 'primary' }), LIMIT_MS)
    .catch(() => undefined)
  const config = asked?.config as { readonly writeConcernMajorityJournalDefault?: unknown } | undefined
  if (config === undefined) return [{ name, status: 'ok', finding: `${ours}; its journaling may not be looked at` }]
  if (config.writeConcernMajorityJournalDefault !== false)
    return [{ name, status: 'ok', finding: `${ours}, and a majority has it in its journals` }]
  const todo = 'a power cut at a majority of members forgets locks: set writeConcernMajorityJournalDefault to true'
  return [{ name, status: 'warn', finding: `${ours}, but members confirm before they journal`, todo }]
}

/** Whether this user may write, by a change that finds nothing to change. */
async function rights(collection: MongodbCollection): Promise<NamedFinding> {
  const name = 'rights'
  try {
    const nothing = {
      filter: { _id: 'holdfast doctor', format: -1 },
      pipeline: [{ $set: { format: 0 } }],
      upsert: false,
    }
    await collection.change(nothing, { _id: 1 }, LIMIT_MS)
    return { name, status: 'ok', finding: `this user may change documents of '${collection.name}'` }
  } catch (error) {
    if (mongodbCodeOf(error) !== MONGODB_CODE.unauthorized) throw error
    const todo = 'grant it find, insert, update, remove, createIndex, createCollection and changeStream on it'
    return { name, status: 'fail', finding: `this user may not change documents of '${collection.name}'`, todo }
  }
}

/** Whether there is the index by which empty lines are taken away. */
async function cleaning(collection: MongodbCollection): Promise<NamedFinding> {
  const name = 'clearing away'
  const todo = `let a user who may run db.${collection.name}.createIndex({ remove_at: 1 }, { expireAfterSeconds: 0 })`
  try {
    const { cursor } = await collection.command({ listIndexes: collection.name }, LIMIT_MS)
    const { firstBatch = [] } = cursor as { firstBatch?: readonly MongodbDocument[] }
    const isThere = firstBatch.some((index) => index.name === TTL_INDEX || index.expireAfterSeconds !== undefined)
    if (isThere) return { name, status: 'ok', finding: 'a TTL index takes away lines that are not used any more' }
    return { name, status: 'warn', finding: 'there is no TTL index: lines that are not used stay stored', todo }
  } catch (error) {
    if (mongodbCodeOf(error) === NAMESPACE_NOT_FOUND)
      return { name, status: 'ok', finding: 'no lock has been used here yet; the TTL index is made with the first' }
    if (mongodbCodeOf(error) !== MONGODB_CODE.unauthorized) throw error
    return { name, status: 'warn', finding: 'this user may not see the indexes', todo }
  }
}

const NAMESPACE_NOT_FOUND = 26

async function waking(collection: MongodbCollection): Promise<NamedFinding> {
  const name = 'waking'
  try {
    const stream = { aggregate: collection.name, pipeline: [{ $changeStream: {} }], cursor: {} }
    const { cursor } = await collection.command(stream, LIMIT_MS)
    const { id } = cursor as { id?: unknown }
    await collection.command({ killCursors: collection.name, cursors: [id] }, LIMIT_MS).catch(() => undefined)
    return { name, status: 'ok', finding: 'a change stream wakes waiters' }
  } catch (error) {
    const code = mongodbCodeOf(error)
    if (!NO_CHANGE_STREAMS.has(code ?? 0)) throw error
    const isRefused = code === MONGODB_CODE.unauthorized
    const why = isRefused ? 'this user may not open a change stream' : 'there are no change streams here'
    const todo = isRefused ? 'waiters poll: grant changeStream on the collection' : 'waiters poll: use a replica set'
    return { name, status: 'warn', finding: why, todo }
  }
}
