/** Where a server is, and by which certificates it is trusted: for the clients that open connections by themselves. */

/** Where a server listens for clients. */
export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** Certificates for TLS: whom to trust, and our own. Each is what is in the file, not its path. */
export interface TlsCertificates {
  /** Of the authority that is trusted, instead of those that the system trusts. */
  readonly ca?: string | Buffer
  /** A certificate of our own, and its key. */
  readonly cert?: string | Buffer
  readonly key?: string | Buffer
}
