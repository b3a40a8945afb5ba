/** Where a server is, and how a socket to it is opened: plain, or with TLS. */
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

/** Certificates for TLS: what is trusted beside what the system trusts, and our own. */
export interface ZooKeeperTls {
  readonly ca?: string | Buffer
  /** A certificate of our own, and its key. */
  readonly cert?: string | Buffer
  readonly key?: string | Buffer
}

/** Where a server of the ensemble listens for clients. */
export interface ZooKeeperEndpoint {
  readonly host: string
  readonly port: number
}

export function openSocket({ host, port }: ZooKeeperEndpoint, tls: ZooKeeperTls | undefined): Socket {
  if (tls === undefined) return connectTcp({ host, port, noDelay: true })
  // An address is no name to ask for (RFC 6066). The certificate has to have it all the same.
  const socket = connectTls({ host, port, ...(isIP(host) === 0 ? { servername: host } : {}), ...tls })
  socket.setNoDelay(true)
  return socket
}
