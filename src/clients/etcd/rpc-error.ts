/**
 * A call that failed, in the words of gRPC, and what etcd means by them: whether anything can have been done, and
 * whether another try, or another member, can help.
 */

/** The status codes of gRPC that come up here (https://grpc.io/docs/guides/status-codes/). */
export const STATUS = {
  ok: 0,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  permissionDenied: 7,
  failedPrecondition: 9,
  outOfRange: 11,
  unimplemented: 12,
  unavailable: 14,
  unauthenticated: 16,
} as const

/** The server refused without doing anything. What it says under `unavailable` may be about something that was done. */
const REFUSED = new Set<number>([
  ...[STATUS.invalidArgument, STATUS.notFound, STATUS.permissionDenied, STATUS.failedPrecondition],
  ...[STATUS.outOfRange, STATUS.unimplemented, STATUS.unauthenticated],
])

/** Time does not mend it. */
const LASTING = new Set<number>([
  ...[
    STATUS.invalidArgument,
    STATUS.permissionDenied,
    STATUS.failedPrecondition,
    STATUS.unimplemented,
    STATUS.unauthenticated,
  ],
])

export class RpcError extends Error {
  readonly status: number
  /** Nothing of it was done. */
  readonly refused: boolean
  readonly lasting: boolean

  constructor(
    status: number,
    message: string,
    options: { readonly refused?: boolean; readonly lasting?: boolean; readonly cause?: unknown } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.name = 'RpcError'
    this.status = status
    this.refused = options.refused ?? (REFUSED.has(status) || message === NO_LEADER || message.includes(TOO_MANY))
    this.lasting = options.lasting ?? (LASTING.has(status) && !OLD_TOKEN.test(message))
  }

  /** The token that came with the call is not known, or older than the users and roles are. */
  get tokenRejected(): boolean {
    return OLD_TOKEN.test(this.message) || this.message.includes(NO_TOKEN)
  }

  /** This member cannot serve, and others may. */
  get elsewhere(): boolean {
    return this.status === STATUS.unavailable || this.status === STATUS.deadlineExceeded
  }
}

/** The next token may be new enough, also if this was the second that was not: users and roles can change fast. */
const OLD_TOKEN = /invalid auth token|revision of auth store is old/
const NO_TOKEN = 'user name is empty'
/** Said by a member that has no leader to those who ask for one, before it does anything. */
const NO_LEADER = 'etcdserver: no leader'
/** Said before anything is done. That there is no space left may be said of something that was done all the same. */
const TOO_MANY = 'etcdserver: too many requests'
