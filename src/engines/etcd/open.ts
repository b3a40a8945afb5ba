/** From a URL to the engine. */
import { readFileSync } from 'node:fs'
import { parseEtcdUrl } from '../../clients/etcd/url.ts'
import type { EtcdEngine } from './engine.ts'
import { type EtcdOptions, etcd } from './setup.ts'

/** The engine behind a URL; see url.ts for what one looks like. */
export async function openEtcd(url: string, options: Partial<EtcdOptions> = {}): Promise<EtcdEngine> {
  const { hosts, user, tls, ca, cert, key, prefix } = parseEtcdUrl(url)
  const read = (name: string, file: string | undefined): object =>
    file === undefined ? {} : { [name]: readFileSync(file) }
  return etcd({
    endpoints: hosts,
    ...(user === undefined ? {} : { user }),
    ...(tls ? { tls: { ...read('ca', ca), ...read('cert', cert), ...read('key', key) } } : {}),
    ...(prefix === undefined ? {} : { prefix }),
    ...options,
  })
}
