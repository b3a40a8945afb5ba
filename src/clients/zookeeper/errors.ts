/** What a server answers instead of doing what it was asked, and what it means that a connection or a session ended. */

/**
 * The codes that come up here
 * (https://zookeeper.apache.org/doc/current/apidocs/zookeeper-server/org/apache/zookeeper/KeeperException.Code.html).
 */
export const ZOOKEEPER_CODE = {
  connectionLoss: -4,
  unimplemented: -6,
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  nodeExists: -110,
  notEmpty: -111,
  sessionExpired: -112,
  authFailed: -115,
  sessionMoved: -118,
  throttled: -127,
} as const

const MEANINGS = new Map<number, string>([
  [-1, 'an error of the server'],
  [-5, 'the server could not read the request'],
  [ZOOKEEPER_CODE.unimplemented, 'the server does not know this request'],
  [-7, 'the server took too long'],
  [-8, 'the server refuses the arguments'],
  [ZOOKEEPER_CODE.noNode, 'there is no such node'],
  [ZOOKEEPER_CODE.noAuth, 'no right to do this'],
  [ZOOKEEPER_CODE.badVersion, 'the node has changed meanwhile'],
  [-108, 'an ephemeral node has no children'],
  [ZOOKEEPER_CODE.nodeExists, 'the node exists already'],
  [ZOOKEEPER_CODE.notEmpty, 'the node has children'],
  [ZOOKEEPER_CODE.sessionExpired, 'the session has expired'],
  [-114, 'the access control list is not valid'],
  [ZOOKEEPER_CODE.authFailed, 'the server refuses the credentials'],
  [ZOOKEEPER_CODE.sessionMoved, 'the session has moved to another server'],
  [-125, 'a quota is exceeded'],
  [ZOOKEEPER_CODE.throttled, 'the server throttles requests'],
])

/** The server refused: nothing was applied. */
const REFUSED_BELOW = -100

export class ZooKeeperError extends Error {
  override readonly name: string = 'ZooKeeperError'
  readonly code: number
  /** Nothing of the request was applied. */
  readonly refused: boolean
  /** The same request fails again later, too. */
  readonly lasting: boolean
  /** Of a `multi`: which of its steps was refused, counted from 0. */
  readonly step: number | undefined

  constructor(
    code: number,
    message: string,
    options: {
      readonly refused?: boolean
      readonly lasting?: boolean
      readonly cause?: unknown
      readonly step?: number | undefined
    } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.code = code
    this.refused = options.refused ?? (code <= REFUSED_BELOW || code === ZOOKEEPER_CODE.unimplemented)
    this.lasting = options.lasting ?? LASTING.has(code)
    this.step = options.step
  }
}

const LASTING = new Set<number>([
  ZOOKEEPER_CODE.noAuth,
  ZOOKEEPER_CODE.authFailed,
  ZOOKEEPER_CODE.unimplemented,
  ...[-5, -8, -114],
])

/** Whether most servers have taken part in the answer to a write. One that throttles answers by itself. */
export function wasDecided(code: number): boolean {
  return code !== ZOOKEEPER_CODE.throttled
}

/** The error that the server answered to a request. */
export function answeredError(code: number, what: string, step?: number): ZooKeeperError {
  return new ZooKeeperError(code, `${what}: ${MEANINGS.get(code) ?? 'refused'} (${code})`, { step })
}

/** `refused`: the request was not sent. `lasting`: nor is any other one. */
export function connectionLost(
  message: string,
  options: { readonly refused: boolean; readonly lasting?: boolean; cause?: unknown },
): ZooKeeperError {
  return new ZooKeeperError(ZOOKEEPER_CODE.connectionLoss, message, options)
}

/** The server has ended the session, with all its ephemeral nodes. It does not come back. */
export function sessionExpired(options: { readonly refused: boolean }): ZooKeeperError {
  return new ZooKeeperError(ZOOKEEPER_CODE.sessionExpired, 'the session has expired', options)
}

export function hasCode(error: unknown, code: keyof typeof ZOOKEEPER_CODE): error is ZooKeeperError {
  return error instanceof ZooKeeperError && error.code === ZOOKEEPER_CODE[code]
}

/** Whether the server has answered that it did nothing of what it was asked. */
export function wasRefused(error: unknown): error is ZooKeeperError {
  return error instanceof ZooKeeperError && error.refused && error.code <= REFUSED_BELOW
}
