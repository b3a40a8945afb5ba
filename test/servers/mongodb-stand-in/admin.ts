/** Commands about the server itself, its collections and indexes, and the end of transactions. */
import { EJSON } from 'bson'
import type { Call, Command } from './calls.ts'
import type { Collection, Index } from './data.ts'
import { CommandError } from './errors.ts'
import { sessionKey } from './sessions.ts'
import { type Document, equal } from './values.ts'

const VERSION = '5.0.34'

function createIndexes(call: Call): Document {
  const { data, isReplicaSet } = call.server
  const existed = data.find(call.db, call.collection) !== undefined
  const collection = data.collection(call.db, call.collection)
  const before = collection.indexes.length
  const made = (call.command.indexes as Index[]).filter((index) => isNew(collection, index))
  if (made.length > 0)
    data.setIndexes(collection, [
      ...collection.indexes,
      ...made.map(({ key, name, ...rest }) => ({ ...rest, v: 2, key, name })),
    ])
  const counts = { numIndexesBefore: before, numIndexesAfter: collection.indexes.length }
  const quorum = isReplicaSet ? { commitQuorum: 'votingMembers' } : {}
  if (made.length === 0) return { ...counts, note: 'all indexes already exist', ...quorum }
  return { ...counts, createdCollectionAutomatically: !existed, ...quorum }
}

/** Whether the index is to be made; the same keys with other options are refused. */
function isNew({ indexes }: Collection, index: Index): boolean {
  const found = indexes.find(
    ({ key, name }) => name === index.name || EJSON.stringify(key) === EJSON.stringify(index.key),
  )
  if (found === undefined) return true
  const options = (each: Index): Document => [each.key, each.name, each.unique, each.expireAfterSeconds]
  if (equal(options(found), options(index))) return false
  throw new CommandError(
    85,
    `An equivalent index already exists with the same name but different options. Requested index: ${EJSON.stringify(index)}, existing index: ${EJSON.stringify(found)}`,
  )
}

function dropIndexes(call: Call): Document {
  const collection = existing(call)
  const { index } = call.command
  const nIndexesWas = collection.indexes.length
  call.server.data.setIndexes(
    collection,
    collection.indexes.filter(({ name }) => name === '_id_' || (index !== '*' && name !== index)),
  )
  return { nIndexesWas }
}

function existing(call: Call): Collection {
  const found = call.server.data.find(call.db, call.collection)
  if (found === undefined) throw new CommandError(26, 'ns not found')
  return found
}

function collectionsOf(call: Call): readonly Collection[] {
  return [...call.server.data.collections.values()].filter(({ db }) => db === call.db)
}

function create(call: Call): Document {
  if (call.server.data.find(call.db, call.collection) !== undefined)
    throw new CommandError(48, `Collection already exists. NS: ${call.db}.${call.collection}`)
  call.server.data.collection(call.db, call.collection)
  return {}
}

function drop(call: Call): Document {
  const collection = existing(call)
  call.server.data.drop(collection)
  return { nIndexesWas: collection.indexes.length, ns: `${call.db}.${call.collection}` }
}

/** Not recorded: so the manual of the command has it. */
function renameCollection(call: Call): Document {
  const { data } = call.server
  const [from, to] = [call.command.renameCollection, call.command.to].map((name) => splitName(String(name)))
  const collection = data.find(from?.db ?? '', from?.name ?? '')
  if (collection === undefined || to === undefined) throw new CommandError(26, 'Source collection does not exist')
  if (to.db !== collection.db) throw new CommandError(20, 'only inside of one database')
  if (data.find(to.db, to.name) !== undefined && call.command.dropTarget !== true)
    throw new CommandError(48, 'target namespace exists')
  data.rename(collection, to.name)
  return {}
}

function splitName(name: string): { readonly db: string; readonly name: string } {
  const dot = name.indexOf('.')
  return { db: name.slice(0, dot), name: name.slice(dot + 1) }
}

function dropDatabase(call: Call): Document {
  for (const collection of collectionsOf(call)) call.server.data.drop(collection)
  return { dropped: call.db }
}

function oneBatch(ns: string, documents: readonly Document[]): Document {
  return { cursor: { id: 0n, ns, firstBatch: documents } }
}

function listCollections(call: Call): Document {
  const { filter = {} } = call.command as { filter?: Document }
  const found = collectionsOf(call).filter(({ name }) => filter.name === undefined || filter.name === name)
  const shown = found.map(({ name }) => ({ name, type: 'collection', options: {}, info: { readOnly: false } }))
  return oneBatch(`${call.db}.$cmd.listCollections`, shown)
}

function listDatabases(call: Call): Document {
  const names = new Set([...call.server.data.collections.values()].map(({ db }) => db))
  return {
    databases: [...names].map((name) => ({ name, sizeOnDisk: 8192, empty: false })),
    totalSize: 8192 * names.size,
  }
}

/** On servers that are no member of a set, such commands fail alike. */
function onlyInSets(work: Command): Command {
  return (call) => {
    if (!call.server.isReplicaSet) throw new CommandError(76, 'not running with --replSet')
    return work(call)
  }
}

function replSetGetStatus(call: Call): Document {
  const { address, data, isPrimary } = call.server
  const optime = { ts: data.last, t: 1n }
  const member = {
    _id: 0,
    name: address,
    health: 1,
    state: isPrimary ? 1 : 2,
    stateStr: isPrimary ? 'PRIMARY' : 'SECONDARY',
    self: true,
  }
  return {
    set: 'rs',
    date: new Date(Date.now()),
    myState: member.state,
    term: 1n,
    optimes: { lastCommittedOpTime: optime },
    members: [member],
  }
}

function replSetGetConfig(call: Call): Document {
  const member = { _id: 0, host: call.server.address, arbiterOnly: false, hidden: false, priority: 1, votes: 1 }
  const settings = { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 500 }
  const config = {
    _id: 'rs',
    version: 1,
    term: 1,
    members: [member],
    writeConcernMajorityJournalDefault: true,
    settings,
  }
  return { config: { ...config, ...call.server.reconfigured } }
}

/** It changes what is answered, and nothing else. */
function replSetReconfig(call: Call): Document {
  call.server.reconfigured = call.command.replSetReconfig as Document
  return {}
}

function serverStatus(call: Call): Document {
  const { isReplicaSet, address } = call.server
  return {
    host: address,
    version: VERSION,
    process: 'mongod',
    pid: BigInt(process.pid),
    uptime: process.uptime(),
    localTime: new Date(Date.now()),
    connections: { current: call.server.connections, available: 1000 },
    storageEngine: { name: 'wiredTiger', supportsCommittedReads: true, persistent: true },
    ...(isReplicaSet ? { repl: { setName: 'rs', ismaster: call.server.isPrimary, me: address } } : {}),
  }
}

function buildInfo(): Document {
  return {
    version: VERSION,
    versionArray: [5, 0, 34, 0],
    modules: [],
    bits: 64,
    maxBsonObjectSize: 16777216,
    storageEngines: ['wiredTiger'],
  }
}

function commitTransaction(call: Call): Document {
  const transaction = call.session?.current(call.number ?? 0n)
  // A commit that is repeated, since its answer was lost, is answered alike.
  if (transaction?.state === 'open') transaction.commit()
  return {}
}

function abortTransaction(call: Call): Document {
  const transaction = call.session?.current(call.number ?? 0n)
  if (transaction?.state === 'committed') throw new CommandError(256, `Transaction ${call.number} has been committed.`)
  transaction?.abort()
  return {}
}

function endSessions(call: Call): Document {
  for (const id of call.command.endSessions as Document[]) call.server.endSession(sessionKey(id))
  return {}
}

const nothing: Command = () => ({})

export const ADMIN: Readonly<Record<string, Command>> = {
  createIndexes,
  dropIndexes,
  create,
  drop,
  renameCollection,
  dropDatabase,
  listCollections,
  listDatabases,
  listIndexes: (call) => oneBatch(`${call.db}.${call.collection}`, existing(call).indexes as Document[]),
  ping: nothing,
  buildInfo,
  buildinfo: buildInfo,
  serverStatus,
  hostInfo: () => ({ system: { currentTime: new Date(Date.now()), hostname: 'stand-in' } }),
  connectionStatus: () => ({
    authInfo: { authenticatedUsers: [], authenticatedUserRoles: [], authenticatedUserPrivileges: [] },
  }),
  getCmdLineOpts: () => ({ argv: ['mongod'], parsed: {} }),
  getParameter: (call) => call.server.parameters(call.command),
  setParameter: (call) => call.server.setParameter(call.command),
  getDefaultRWConcern: onlyInSets(() => ({
    defaultReadConcern: { level: 'local' },
    defaultReadConcernSource: 'implicit',
    defaultWriteConcern: { w: 'majority', wtimeout: 0 },
    defaultWriteConcernSource: 'implicit',
  })),
  // It is the only member from the beginning.
  replSetInitiate: onlyInSets(nothing),
  replSetGetStatus: onlyInSets(replSetGetStatus),
  replSetGetConfig: onlyInSets(replSetGetConfig),
  replSetReconfig: onlyInSets(replSetReconfig),
  replSetStepDown: onlyInSets((call) => call.server.stepDown(Number(call.command.replSetStepDown))),
  startSession: (call) => ({ id: call.command.lsid, timeoutMinutes: 30 }),
  refreshSessions: nothing,
  endSessions,
  commitTransaction,
  abortTransaction,
  configureFailPoint: (call) => {
    call.server.failPoint.configure(call.command)
    return { count: 0 }
  },
}
