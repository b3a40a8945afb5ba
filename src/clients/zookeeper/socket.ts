/** How a socket to a server is opened: plain, or with TLS. */
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Endpoint, TlsCertificates } from '../shared/endpoint.ts'

export function openSocket({ host, port }: Endpoint, tls: TlsCertificates | undefined): Socket {
  if (tls === undefined) return connectTcp({ host, port, noDelay: true })
  // An address is no name to ask for (RFC 6066). The certificate has to have it all the same.
  const socket = connectTls({ host, port, ...(isIP(host) === 0 ? { servername: host } : {}), ...tls })
  socket.setNoDelay(true)
  return socket
}
