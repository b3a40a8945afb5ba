/** The fault proxy does to a connection what its names say, seen from both ends of an echo server's connections. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { FaultProxy } from './proxy.ts'

let echo: Server
let proxy: FaultProxy
let atServer = ''
const sockets = new Set<Socket>()

beforeEach(async () => {
  atServer = ''
  echo = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('data', (bytes) => {
      atServer += bytes
      socket.write(bytes)
    })
  }).listen(0, '127.0.0.1')
  await once(echo, 'listening')
  proxy = await FaultProxy.start({ port: (echo.address() as AddressInfo).port })
})

afterEach(async () => {
  await proxy[Symbol.asyncDispose]()
  for (const socket of sockets) socket.destroy()
  sockets.clear()
  echo.close()
})

/** A client of the echo server that remembers what it heard and how its connection ended. */
class Client {
  heard = ''
  end: 'open' | 'closed' | 'reset' = 'open'
  readonly socket: Socket = connect({ port: proxy.port, host: '127.0.0.1', noDelay: true })

  constructor() {
    sockets.add(this.socket)
    this.socket.on('data', (bytes) => {
      this.heard += bytes
    })
    this.socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET') this.end = 'reset'
    })
    this.socket.on('close', () => {
      if (this.end === 'open') this.end = 'closed'
    })
  }

  async hears(text: string): Promise<void> {
    await until(() => expect(this.heard).toBe(text))
  }

  /** A client whose connection stands all the way through. */
  static async joined(): Promise<Client> {
    const client = new Client()
    client.socket.write('hello ')
    await client.hears('hello ')
    return client
  }
}

async function until(check: () => void): Promise<void> {
  await vi.waitFor(check, { timeout: 20_000, interval: 2 })
}

test('a healthy network carries both ways, and ends connections when either side does', async () => {
  const client = await Client.joined()
  client.socket.end('bye')
  await client.hears('hello bye')
  await until(() => expect(client.end).toBe('closed'))
  await until(() => expect(proxy.size).toBe(0))
})

test('delayed bytes arrive by themselves', async () => {
  const client = await Client.joined()
  proxy.delay(50)
  client.socket.write('slow ')
  await client.hears('hello slow ')
})

test('delayed bytes are held, and nothing overtakes them when the delay ends', async () => {
  const client = await Client.joined()
  proxy.delay(3_600_000)
  client.socket.write('slow ')
  await until(() => expect(proxy.heldBytes('requests')).toBe(5))
  expect(atServer).toBe('hello ')
  await proxy.heal()
  client.socket.write('fast ')
  await client.hears('hello slow fast ')
})

test('a black hole lets nothing through either way, and delivers late when healed', async () => {
  const client = await Client.joined()
  proxy.blackHole()
  client.socket.write('late ')
  await until(() => expect(proxy.heldBytes('requests')).toBe(5))
  expect(atServer).toBe('hello ')
  await proxy.heal()
  await client.hears('hello late ')
})

test('a black hole for requests still carries replies', async () => {
  const client = await Client.joined()
  proxy.blackHole('requests')
  client.socket.write('lost ')
  await until(() => expect(proxy.heldBytes('requests')).toBe(5))
  for (const socket of sockets) if (socket !== client.socket) socket.write('news ')
  await client.hears('hello news ')
  expect(atServer).toBe('hello ')
})

test('a black hole for replies, then a reset: the server has done it and the caller will never know', async () => {
  const client = await Client.joined()
  proxy.blackHole('replies')
  client.socket.write('done ')
  await until(() => expect(proxy.heldBytes('replies')).toBe(5))
  expect(atServer).toBe('hello done ')
  proxy.reset()
  await proxy.heal()
  await until(() => expect(client.end).toBe('reset'))
  expect(client.heard).toBe('hello ')
})

test('the server does not learn through a black hole that its client has died', async () => {
  const client = await Client.joined()
  const [atTheServer] = [...sockets].filter((socket) => socket !== client.socket)
  proxy.blackHole()
  client.socket.resetAndDestroy()
  const second = new Client()
  second.socket.write('still held')
  await until(() => expect(proxy.heldBytes('requests')).toBe(10))
  expect(atTheServer?.destroyed).toBe(false)
  await proxy.heal()
  await until(() => expect(atTheServer?.destroyed).toBe(true))
})

test('what is forgotten stays open and hears nothing any more, and new connections are well', async () => {
  const client = await Client.joined()
  proxy.blackHole()
  client.socket.write('lost ')
  await until(() => expect(proxy.heldBytes('requests')).toBe(5))
  proxy.forget()
  await proxy.heal()
  client.socket.write('lost ')
  await Client.joined()
  expect([atServer, client.heard, client.end]).toEqual(['hello hello ', 'hello ', 'open'])
})

test('a reset cuts what is open and takes new connections', async () => {
  const client = await Client.joined()
  proxy.reset()
  await until(() => expect(client.end).toBe('reset'))
  await Client.joined()
})

test('refused connections get ECONNREFUSED until healed, on the same port', async () => {
  const client = await Client.joined()
  await proxy.refuse()
  await until(() => expect(client.end).toBe('reset'))
  const refused = connect({ port: proxy.port, host: '127.0.0.1' })
  await expect(once(refused, 'connect')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  await proxy.heal()
  await Client.joined()
})

test('a server that is not there is a reset, not a hang', async () => {
  for (const socket of sockets) socket.destroy()
  echo.close()
  await once(echo, 'close')
  const client = new Client()
  await until(() => expect(client.end).toBe('reset'))
})
