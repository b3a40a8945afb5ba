/** Connections to MariaDB that are encrypted: the server has to be the one that the URL names. */
import { expect, test } from 'vitest'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer, present } from '../servers/suite.ts'
import { Authority } from '../servers/tls.ts'

await describeServer('MariaDB by TLS', findOwnMariadb, (source) => {
  // By an address and by a name, of which neither says anything of the other.
  for (const [names, right, wrong] of [
    ['IP:127.0.0.1', '127.0.0.1', 'localhost'],
    ['DNS:localhost', 'localhost', '127.0.0.1'],
  ] as const)
    test(`a certificate for ${names} is believed of ${right}, and not of ${wrong}`, async (context) => {
      using authority = present(await Authority.make(names), context)
      const args = [`--ssl-cert=${authority.certificateFile}`, `--ssl-key=${authority.keyFile}`]
      await using server = await MariadbServer.start(source, { args })
      const inspect = async (host: string): Promise<unknown> => {
        const url = server.url.replace('127.0.0.1', host)
        const engine = await openMysql(`${url}?ca=${encodeURIComponent(authority.caFile)}`)
        try {
          return await engine.inspect('key')
        } finally {
          await engine[Symbol.asyncDispose]()
        }
      }
      expect(await inspect(right)).toEqual({ key: 'key', entries: [] })
      await expect(inspect(wrong)).rejects.toMatchObject({ name: 'EngineError', transient: false })
    })
})
