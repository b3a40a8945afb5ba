/** What it takes at least to tell another process something, on each server: a bare message. Hand-offs are compared with it. */
import { Redis } from 'ioredis'
import pg from 'pg'

export interface Teller {
  /** Send one. */
  tell(): Promise<unknown>
  close(): Promise<unknown>
}

interface Kind {
  readonly name: string
  teller(url: string): Promise<Teller>
  /** Resolves when messages arrive. */
  listen(url: string, heard: () => void): Promise<unknown>
}

const CHANNEL = 'bare'

const KINDS: Readonly<Record<string, Kind>> = {
  redis: {
    name: 'bare published message',
    async teller(url) {
      const client = new Redis(url)
      return { tell: () => client.publish(CHANNEL, 'x'), close: async () => client.disconnect() }
    },
    async listen(url, heard) {
      const client = new Redis(url)
      client.on('message', heard)
      await client.subscribe(CHANNEL)
    },
  },
  postgres: {
    name: 'bare NOTIFY',
    async teller(url) {
      const client = new pg.Client(url)
      await client.connect()
      return { tell: () => client.query(`NOTIFY ${CHANNEL}`), close: () => client.end() }
    },
    async listen(url, heard) {
      const client = new pg.Client(url)
      await client.connect()
      client.on('notification', heard)
      await client.query(`LISTEN ${CHANNEL}`)
    },
  },
}

/** The kind of message that the server at `url` knows. */
export function messages(url: string): Kind {
  const kind = KINDS[new URL(url).protocol.slice(0, -1)]
  if (kind === undefined) throw new Error(`no message is known for ${url}`)
  return kind
}
