/**
 * What can become of a call besides an answer of the server: it was not sent, or it was not answered. And which errors
 * of a connection time does not mend, whichever the driver.
 */

import { thrownText } from '../../core/thrown.ts'

/** Nothing was sent: there was no connection, or none in time. So nothing was applied. */
export class NotSent extends Error {
  override readonly name = 'NotSent'

  /** Without a cause: there is no connection, and nothing is known of why. */
  constructor(cause: unknown) {
    super(cause === undefined ? 'not connected' : thrownText(cause), { cause })
  }
}

/** No answer came in time. Whether the server has applied the call is not known. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'

  constructor() {
    super('no answer in time')
  }
}

/**
 * Node's codes for certificates that do not convince: nodejs.org/api/tls.html#x509-certificate-error-codes. Of those,
 * OUT_OF_MEM is left out, which passes.
 */
const UNTRUSTED =
  /^(?:CERT_|CRL_|DEPTH_ZERO_|ERROR_IN_C|ERR_TLS_CERT|HOSTNAME_|INVALID_[CP]|PATH_LENGTH_|SELF_SIGNED_|UNABLE_TO_)/

/** Whether a certificate does not convince. `more`: the codes by which this driver, or this server, says so besides. */
export function isUntrusted(error: unknown, more?: RegExp): boolean {
  const code = String((error as NodeJS.ErrnoException | undefined)?.code)
  return UNTRUSTED.test(code) || (more?.test(code) ?? false)
}
