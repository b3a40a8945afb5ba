/** Locks on a server that takes clients by TLS only with a certificate of their own. */
import { readFileSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, onTestFinished, type TestContext, test } from 'vitest'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { newClaim } from '../claims.ts'
import { freePort } from '../servers/ports.ts'
import { Missing } from '../servers/programs.ts'
import { describeServer, present } from '../servers/suite.ts'
import { Authority } from '../servers/tls.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'

await describeServer('ZooKeeper by TLS', findOwnZooKeeper, (source) => {
  let authority: Authority | Missing
  let server: ZooKeeperServer | undefined
  let port: number

  beforeAll(async () => {
    authority = await Authority.make()
    if (authority instanceof Missing) return
    port = await freePort()
    // One file has the key and the certificate.
    const store = `${authority.keyFile}.pem`
    writeFileSync(store, readFileSync(authority.keyFile, 'utf8') + readFileSync(authority.certificateFile, 'utf8'))
    server = await ZooKeeperServer.start(source, {
      settings: [
        ...[`secureClientPort=${port}`, 'secureClientPortAddress=127.0.0.1', 'ssl.clientAuth=need'],
        'serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory',
        ...[`ssl.keyStore.location=${store}`, 'ssl.keyStore.type=PEM'],
        ...[`ssl.trustStore.location=${authority.caFile}`, 'ssl.trustStore.type=PEM'],
      ],
    })
  })

  afterAll(async () => {
    await server?.[Symbol.asyncDispose]()
    if (authority !== undefined && !(authority instanceof Missing)) authority[Symbol.dispose]()
  })

  async function open(
    context: TestContext,
    options: (found: Authority) => Readonly<Record<string, string>>,
  ): Promise<ZooKeeperEngine> {
    const query = Object.entries(options(present(authority, context)))
    const written = query.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&')
    const engine = await openZooKeeper(`zookeeper://127.0.0.1:${port}?${written}`)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  const entered = async (engine: ZooKeeperEngine): Promise<unknown> => (await engine.enter([newClaim('secret')]))[0]
  const failed = (message: string): object => ({
    state: 'failed',
    error: { outcome: 'not-applied', transient: false, message: expect.stringContaining(message) },
  })

  test('with the authority of the server and a certificate of our own, locks are had, and doctor is answered', async (context) => {
    const engine = await open(context, ({ caFile, certificateFile, keyFile }) => ({
      ca: caFile,
      cert: certificateFile,
      key: keyFile,
    }))
    expect(await entered(engine)).toMatchObject({ state: 'held' })
    expect(await engine.diagnose()).toContainEqual({
      name: 'version',
      status: 'ok',
      finding: expect.stringMatching(/^ZooKeeper 3/),
    })
  })

  test('a server whose authority we do not know is refused, and the error says why', async (context) => {
    const engine = await open(context, ({ certificateFile, keyFile }) => ({
      tls: 'true',
      cert: certificateFile,
      key: keyFile,
    }))
    expect(await entered(engine)).toMatchObject(failed('certificate'))
  })

  test('without a certificate of our own the server refuses us, and the error says why', async (context) => {
    const engine = await open(context, ({ caFile }) => ({ ca: caFile }))
    expect(await entered(engine)).toMatchObject(failed('certificate'))
  })

  test('without TLS, the error says that no ZooKeeper server answers there', async (context) => {
    const engine = await open(context, () => ({}))
    expect(await entered(engine)).toMatchObject({
      state: 'failed',
      error: { outcome: 'not-applied', message: expect.stringContaining(`127.0.0.1:${port}`) },
    })
  })
})
