/** What can become of a call besides an answer of the server: it was not sent, or it was not answered. */

/** Nothing was sent: there was no connection, or none in time. So nothing was applied. */
export class NotSent extends Error {
  override readonly name = 'NotSent'

  constructor(cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause ?? 'not connected'), { cause })
  }
}

/** No answer came in time. Whether the server has applied the call is not known. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'

  constructor() {
    super('no answer in time')
  }
}
