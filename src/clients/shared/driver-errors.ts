/** What can become of a call besides an answer of the server: it was not sent, or it was not answered. */

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
