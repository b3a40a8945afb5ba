/**
 * What people use on MongoDB today: the protocol that is written by hand again and again (a document with a unique
 * index, inserted and deleted), and a library. All of them confirm by a majority, as we do.
 */
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { callbackify } from 'node:util'
import { type Collection, type Document, MongoClient, MongoServerError } from 'mongodb'
import type { Peer } from './ours.ts'

const TTL_MS = 30_000
/** How often the hand-written protocol asks again, as most of those who write it do. */
const POLL_MS = 50
const DUPLICATE_KEY = 11_000

export interface MongodbPeers extends AsyncDisposable {
  readonly peers: readonly Peer[]
  /** The hand-written protocol of one key that all callers want: it polls. */
  contended(): Promise<void>
}

/** All of them, the hand-written one first. */
export async function peers(url: string, connections: number): Promise<MongodbPeers> {
  const client = new MongoClient(url, { maxPoolSize: connections, writeConcern: { w: 'majority' } })
  const database = client.db('bench')
  await database.dropDatabase()
  const byHand = database.collection('hand_written')
  await byHand.createIndex({ resource: 1 }, { unique: true })
  await byHand.createIndex({ expires_at: 1 }, { expireAfterSeconds: 0 })
  const acquire = async (resource: string, owner: string): Promise<boolean> => {
    try {
      await byHand.insertOne({ resource, owner, expires_at: new Date(Date.now() + TTL_MS) })
      return true
    } catch (error) {
      if (error instanceof MongoServerError && error.code === DUPLICATE_KEY) return false
      throw error
    }
  }
  const release = async (resource: string, owner: string): Promise<void> => {
    mustHold((await byHand.deleteOne({ resource, owner })).deletedCount === 1)
  }
  return {
    peers: [
      {
        name: 'hand-written: insertOne, deleteOne',
        async pair(caller) {
          const owner = randomUUID()
          mustHold(await acquire(`hand:${caller}`, owner))
          await release(`hand:${caller}`, owner)
        },
      },
      await mongodbLock(database.collection('mongodb_lock')),
    ],
    async contended() {
      const owner = randomUUID()
      while (!(await acquire('one', owner))) await sleep(POLL_MS)
      await release('one', owner)
    },
    [Symbol.asyncDispose]: () => client.close(),
  }
}

function mustHold(held: unknown): void {
  if (!held) throw new Error('a lock that no other caller asks for was not had')
}

type Done<Value> = (error: Error | null, value?: Value) => void

interface Lock {
  acquire(done: Done<string | null>): void
  release(code: string, done: Done<boolean>): void
}

/**
 * The package mongodb-lock speaks to drivers with callbacks, which ended with version 5: it is given a collection that
 * has them. What it asks of the server is its own.
 */
async function mongodbLock(collection: Collection): Promise<Peer> {
  const lockOn = createRequire(import.meta.url)('mongodb-lock') as (on: object, name: string, options: object) => Lock
  await collection.createIndex({ name: 1 }, { unique: true })
  await collection.createIndex({ code: 1 })
  const withCallbacks = {
    insertOne: callbackify(async (document: Document) => {
      await collection.insertOne(document)
      return { ops: [document] }
    }),
    findOneAndDelete: callbackify(async (query: Document) => await collection.findOneAndDelete(query)),
  }
  return {
    name: 'mongodb-lock',
    async pair(caller) {
      const lock = lockOn(withCallbacks, `lock:${caller}`, { timeout: TTL_MS, removeExpired: true })
      const code = await promised<string | null>((done) => lock.acquire(done))
      mustHold(code)
      mustHold(await promised<boolean>((done) => lock.release(code ?? '', done)))
    },
  }
}

async function promised<Value>(call: (done: Done<Value>) => void): Promise<Value> {
  return await new Promise((resolve, reject) => {
    call((error, value) => (error === null ? resolve(value as Value) : reject(error)))
  })
}
