/**
 * A call that failed, by the status codes of gRPC, and what etcd means by them: whether the call can have been applied,
 * and whether another try, or another member, can help.
 */

/** The status codes of gRPC that come up here (https://grpc.io/docs/guides/status-codes/). */
export const GRPC_STATUS = {
  ok: 0,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  permissionDenied: 7,
  resourceExhausted: 8,
  failedPrecondition: 9,
  outOfRange: 11,
  unimplemented: 12,
  unavailable: 14,
  unauthenticated: 16,
} as const

/** The server refused, and nothing was applied. Not so `unavailable`: such a call may have been applied. */
const REFUSED = new Set<number>([
  ...[GRPC_STATUS.invalidArgument, GRPC_STATUS.notFound, GRPC_STATUS.permissionDenied, GRPC_STATUS.failedPrecondition],
  ...[GRPC_STATUS.outOfRange, GRPC_STATUS.unimplemented, GRPC_STATUS.unauthenticated],
])

/** The same call fails again later. */
const LASTING = new Set<number>([
  ...[
    GRPC_STATUS.invalidArgument,
    GRPC_STATUS.permissionDenied,
    GRPC_STATUS.failedPrecondition,
    GRPC_STATUS.unimplemented,
    GRPC_STATUS.unauthenticated,
  ],
])

export class RpcError extends Error {
  readonly status: number
  /** Nothing of the call was applied. */
  readonly refused: boolean
  /** The same call fails again later, too. */
  readonly lasting: boolean

  constructor(
    status: number,
    message: string,
    options: { readonly refused?: boolean; readonly lasting?: boolean; readonly cause?: unknown } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.name = 'RpcError'
    this.status = status
    this.refused = options.refused ?? (REFUSED.has(status) || BEFORE_ANYTHING.test(message))
    this.lasting = options.lasting ?? (LASTING.has(status) && !OLD_TOKEN.test(message))
  }

  /** The server does not know the token of the call, or the token is older than the last change of users and roles. */
  get tokenRejected(): boolean {
    return OLD_TOKEN.test(this.message) || this.message.includes(NO_TOKEN)
  }

  /**
   * The database is full. The call may have been applied all the same, but it is not under way any more: a read that is
   * sent now sees what became of it.
   */
  get noSpace(): boolean {
    return this.status === GRPC_STATUS.resourceExhausted && this.message.includes(NO_SPACE)
  }

  /** This member cannot serve; another one may. */
  get elsewhere(): boolean {
    return this.status === GRPC_STATUS.unavailable || this.status === GRPC_STATUS.deadlineExceeded
  }
}

/** The next token may be new enough, even after the second that was not: users and roles can change fast. */
const OLD_TOKEN = /invalid auth token|revision of auth store is old/
const NO_TOKEN = 'user name is empty'
/**
 * What a member says before it does anything: it has no leader, and the call asks for a member that has; it has too
 * much to do; or it has no vote yet (a learner), and serves no client.
 */
const BEFORE_ANYTHING = /^etcdserver: no leader$|etcdserver: (?:too many requests|rpc not supported for learner)/
const NO_SPACE = 'database space exceeded'
