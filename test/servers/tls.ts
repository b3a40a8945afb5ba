/** A certificate authority for one test: the openssl program makes it, and a certificate for 127.0.0.1 with it. */
import { execFile } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Missing } from './programs.ts'

const run = promisify(execFile)

export class Authority implements Disposable {
  readonly #folder: string

  /** `names`: those of the server's certificate. */
  static async make(names = 'IP:127.0.0.1,DNS:localhost'): Promise<Authority | Missing> {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-tls-'))
    chmodSync(folder, 0o755)
    const openssl = (...args: string[]): Promise<unknown> => run('openssl', args, { cwd: folder })
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
    writeFileSync(join(folder, 'names'), `subjectAltName=${names}\n`)
    try {
      await openssl(
        'req',
        '-x509',
        ...key,
        '-keyout',
        'ca.key',
        '-out',
        'ca.crt',
        '-days',
        '2',
        '-subj',
        '/CN=Holdfast test authority',
      )
      await openssl('req', ...key, '-keyout', 'server.key', '-out', 'server.csr', '-subj', '/CN=127.0.0.1')
      const signing = ['-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2', '-extfile', 'names']
      await openssl('x509', '-req', '-in', 'server.csr', '-out', 'server.crt', ...signing)
    } catch (error) {
      rmSync(folder, { recursive: true })
      return new Missing(`certificates for a test need the openssl program: ${(error as Error).message.split('\n')[0]}`)
    }
    // The server's own user has to read its key.
    chmodSync(join(folder, 'server.key'), 0o644)
    return new Authority(folder)
  }

  private constructor(folder: string) {
    this.#folder = folder
  }

  get caFile(): string {
    return join(this.#folder, 'ca.crt')
  }

  get certificateFile(): string {
    return join(this.#folder, 'server.crt')
  }

  get keyFile(): string {
    return join(this.#folder, 'server.key')
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
