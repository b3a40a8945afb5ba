/**
 * A replica set of real members, one or three: which of them is the primary, and what can befall them. Clients find the
 * members by the addresses that the members name, so faults of the network are those of a client with one member
 * (`urlThrough` of the server, with a proxy); a member leaves the others by being frozen or killed.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { MongodbServer } from './mongodb.ts'
import type { Program } from './programs.ts'

const PATIENCE_MS = 60_000
const NAME = 'rs'
/** Short, for tests: the others elect a primary so long after they last heard of one. */
const SETTINGS = { electionTimeoutMillis: 2_000, heartbeatIntervalMillis: 500 }

export class MongodbSet implements AsyncDisposable {
  readonly servers: readonly MongodbServer[]

  static async start(program: Program, members: 1 | 3 = 3): Promise<MongodbSet> {
    const started = await Promise.allSettled(
      Array.from({ length: members }, () => MongodbServer.start({ program }, { set: NAME })),
    )
    const set = new MongodbSet(started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : [])))
    try {
      const failed = started.find((one) => one.status === 'rejected')
      if (failed !== undefined) throw failed.reason
      await set.#initiate()
    } catch (error) {
      await set[Symbol.asyncDispose]()
      throw error
    }
    return set
  }

  private constructor(servers: readonly MongodbServer[]) {
    this.servers = servers
  }

  get url(): string {
    return `mongodb://${this.servers.map(({ host, port }) => `${host}:${port}`).join(',')}/?replicaSet=${NAME}`
  }

  /**
   * The member that takes writes. One that was frozen believes for a moment that it still does: of several, the one
   * that was elected last.
   */
  async primary(among: readonly MongodbServer[] = this.servers): Promise<MongodbServer> {
    return await until('no member is primary', async () => {
      const answers = await Promise.all(among.map((server) => roleOf(server)))
      const elected = among.flatMap((server, index) => {
        const { isWritablePrimary, electionId } = answers[index] ?? {}
        return isWritablePrimary === true ? [{ server, electionId: String(electionId) }] : []
      })
      // An ObjectId that is higher with each election.
      return elected.toSorted((a, b) => (a.electionId < b.electionId ? 1 : -1))[0]?.server
    })
  }

  /** Until the others have a primary of their own. */
  async primaryWithout(server: MongodbServer): Promise<MongodbServer> {
    return await this.primary(this.othersThan(server))
  }

  othersThan(server: MongodbServer): readonly MongodbServer[] {
    return this.servers.filter((one) => one !== server)
  }

  /** The primary gives its office up, and is not elected again for so many seconds. */
  async stepDown(seconds = 5): Promise<MongodbServer> {
    const primary = await this.primary()
    await primary
      .command({ replSetStepDown: seconds, secondaryCatchUpPeriodSecs: 1, force: true })
      .catch((error: unknown) => {
        // Servers close the connection on which they were asked. Or another one was elected meanwhile.
        if (!/connection|closed|socket|not primary|can't step down/i.test((error as Error).message)) throw error
      })
    return primary
  }

  /** All of them at once. */
  async restart(how: 'cleanly' | 'killed'): Promise<void> {
    await Promise.all(this.servers.map(async ({ process }) => (how === 'killed' ? process?.kill() : process?.stop())))
    await Promise.all(this.servers.map(async ({ process }) => process?.start()))
    await this.primary()
  }

  /** Whatever has befallen the members: all run, one is primary, and the others follow that one. */
  async heal(): Promise<void> {
    for (const { process } of this.servers) {
      if (process?.running === true) process.resume()
      else await process?.start()
    }
    await until('a member does not follow', async () => {
      const answers = await Promise.all(this.servers.map((server) => roleOf(server)))
      const primaries = answers.filter((answer) => answer?.isWritablePrimary === true)
      const follows = answers.every(
        (answer) => answer === primaries[0] || (answer?.secondary === true && answer.primary === primaries[0]?.me),
      )
      return (primaries.length === 1 && follows) || undefined
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { process } of this.servers) if (process?.running === true) process.resume()
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()))
  }

  async #initiate(): Promise<void> {
    const [first] = this.servers as [MongodbServer]
    const members = this.servers.map(({ host, port }, _id) => ({ _id, host: `${host}:${port}` }))
    // It asks all others first, and makes its log: on a busy machine that takes some seconds.
    await first.command({ replSetInitiate: { _id: NAME, settings: SETTINGS, members } }, PATIENCE_MS)
    await this.heal()
  }
}

/** Undefined for a member that does not answer. */
async function roleOf(server: MongodbServer): Promise<Document | undefined> {
  return await server.command({ hello: 1 }).catch(() => undefined)
}

async function until<Found>(otherwise: string, look: () => Promise<Found | undefined>): Promise<Found> {
  const giveUpAt = performance.now() + PATIENCE_MS
  for (;;) {
    const found = await look()
    if (found !== undefined) return found
    if (performance.now() > giveUpAt) throw new Error(otherwise)
    await sleep(50)
  }
}
