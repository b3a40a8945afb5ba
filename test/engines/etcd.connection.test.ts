/** Connections to members that are frozen: they end when they are closed, not when the member thaws. */
import { readFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { EtcdConnection } from '../../src/clients/etcd/connection.ts'
import type { TlsCertificates } from '../../src/clients/shared/endpoint.ts'
import { systemClock } from '../../src/core/clock.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { Missing } from '../servers/programs.ts'
import { describeServer } from '../servers/suite.ts'
import { Authority } from '../servers/tls.ts'

const LIMIT_MS = 20_000

await describeServer('connections to a frozen etcd', findOwnEtcd, (source) => {
  async function start(options: { readonly authority?: Authority } = {}): Promise<EtcdServer> {
    const server = await EtcdServer.start(source, options)
    onTestFinished(() => server[Symbol.asyncDispose]())
    return server
  }

  /** It does not thaw before the test is over. */
  function freeze(server: EtcdServer): void {
    server.process?.pause()
    onTestFinished(() => server.process?.resume())
  }

  async function secure(): Promise<{ readonly server: EtcdServer; readonly tls: TlsCertificates }> {
    const authority = await Authority.make()
    if (authority instanceof Missing) throw new Error(authority.reason)
    onTestFinished(() => authority[Symbol.dispose]())
    return { server: await start({ authority }), tls: { ca: readFileSync(authority.caFile) } }
  }

  async function ends(connection: EtcdConnection): Promise<void> {
    const ended = connection.closed.then(() => 'closed')
    const late = new Promise((resolve) => setTimeout(() => resolve('open'), LIMIT_MS).unref())
    expect(await Promise.race([ended, late])).toBe('closed')
  }

  test.each(['close', 'retire'] as const)('%s ends one that was in use', async (way) => {
    const server = await start()
    const connection = new EtcdConnection(server, undefined, systemClock)
    await connection.ready
    freeze(server)
    connection[way]()
    await ends(connection)
  })

  test('one that was retired, and is closed before the member has said goodbye, ends', async () => {
    const server = await start()
    const connection = new EtcdConnection(server, undefined, systemClock)
    await connection.ready
    connection.stream('/etcdserverpb.Watch/Watch', {}, { message: () => undefined, ended: () => undefined })
    freeze(server)
    connection.retire()
    await new Promise((resolve) => setImmediate(resolve))
    connection.close()
    await ends(connection)
  })

  test.each(['close', 'retire'] as const)('%s ends one that was in use, with TLS', async (way) => {
    const { server, tls } = await secure()
    const connection = new EtcdConnection(server, tls, systemClock)
    await connection.ready
    freeze(server)
    connection[way]()
    await ends(connection)
  })
})
