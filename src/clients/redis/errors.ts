/**
 * What went wrong, and what that means: whether anything can have been applied, and whether trying again can help.
 *
 * Redis answers with a code in capitals. ioredis and node-redis pass it on as the first word; valkey-glide spells some
 * of them its own way. An error of the client itself (a lost connection, a time-out) has no code, and then it is not
 * known what the server did.
 */
import { type AsEngineError, engineErrors, type FailureMeaning } from '../../core/failed-call.ts'
import { isUntrusted, NotSent } from '../shared/driver-errors.ts'

export const ENGINE = 'redis'

/** As valkey-glide says them. */
const GLIDE_CODES: Readonly<Record<string, string>> = {
  NoScriptError: 'NOSCRIPT',
  ReadOnly: 'READONLY',
  BusyLoadingError: 'LOADING',
  Moved: 'MOVED',
  Ask: 'ASK',
  ClusterDown: 'CLUSTERDOWN',
  TryAgain: 'TRYAGAIN',
  MasterDown: 'MASTERDOWN',
  PermissionDenied: 'NOPERM',
  AuthenticationFailed: 'WRONGPASS',
  ResponseError: 'ERR',
}

/**
 * The server refused before it did anything: it is read-only, loading, out of memory, not responsible, or unable to
 * write. Redis checks these before a script's first write.
 */
const REFUSED = new Set([
  ...['NOSCRIPT', 'READONLY', 'LOADING', 'BUSY', 'MASTERDOWN', 'MISCONF', 'NOREPLICAS', 'OOM'],
  ...['MOVED', 'ASK', 'CLUSTERDOWN', 'TRYAGAIN', 'CROSSSLOT', 'NOAUTH', 'WRONGPASS', 'DENIED'],
])

/**
 * ioredis, in Cluster, has sent a call as often as it sends one. The last try was refused. An earlier one may have been
 * executed, if its connection ended before the answer.
 */
const SENT_AGAIN = /^Too many Cluster redirections\./

/** Time does not mend it. */
const LASTING = new Set(['NOAUTH', 'WRONGPASS', 'NOPERM', 'CROSSSLOT', 'DENIED', 'WRONGTYPE', 'ERR', 'NOPROTO'])

/** Whether trying again later can help. */
export function isPassing(error: unknown): boolean {
  const code = codeOf(error)
  if (code !== undefined) return !LASTING.has(code)
  return !isUntrusted(error)
}

/** The code of an error that Redis answered with; undefined for an error of the client. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined
  // Version 1 writes the colon in another place than version 2.
  const [, glide] = /^An error was signalled by the server:? - (\w+):/.exec(error.message) ?? []
  if (glide !== undefined) return GLIDE_CODES[glide] ?? glide
  // ioredis, when it has followed enough redirections, wraps the last one.
  const [, code] = /^(?:.*Last error: ReplyError: )?([A-Z][A-Z0-9]{2,})(?::? |$)/.exec(error.message) ?? []
  return code
}

/** What an error of the client means; also for Redlock, which has errors of its own name. */
export function meaningOf(error: unknown): FailureMeaning {
  const sent = !(error instanceof NotSent)
  const thrown = sent ? error : error.cause
  const code = codeOf(thrown)
  const said = messageOf(thrown)
  const isRefused = !sent || (code !== undefined && REFUSED.has(code) && !SENT_AGAIN.test(said))
  return {
    message: sent ? said : `not connected${thrown === undefined ? '' : `: ${said}`}`,
    outcome: isRefused ? 'not-applied' : 'unknown',
    transient: isPassing(thrown),
    cause: withoutCommand(thrown),
  }
}

/** What the client threw, as the core wants it. */
export const asEngineError: AsEngineError = engineErrors(ENGINE, meaningOf)

/** What the server says of a missing password is about a command that the user has not sent. */
function messageOf(error: unknown): string {
  if (codeOf(error) === 'NOAUTH')
    return (
      'the server asks for a password, and was given none (NOAUTH): ' +
      'it belongs into the URL, redis://user:password@host, or into the options of your client'
    )
  return error instanceof Error ? error.message : String(error)
}

/** What Node says of a connection that failed, beside the message. */
const KEPT = ['code', 'errno', 'syscall', 'address', 'port'] as const

/**
 * An error of the client without what hangs on it: ioredis adds the command that was refused, and the arguments of AUTH
 * and HELLO are the password. Users print errors with all that they carry. A copy, because a client that was brought
 * shows the same error to its own listeners.
 */
function withoutCommand(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { name, message, stack, cause, errors } = error as Error & { readonly errors?: unknown }
  // In Cluster, ioredis says why in an error of its own.
  const why = cause ?? (error as { readonly lastNodeError?: unknown }).lastNodeError
  const copy: Error & Record<string, unknown> = Object.assign(new Error(message))
  if (why !== undefined) Object.defineProperty(copy, 'cause', hidden(withoutCommand(why)))
  Object.defineProperty(copy, 'name', hidden(name))
  Object.defineProperty(copy, 'stack', hidden(stack))
  if (Array.isArray(errors)) copy.errors = errors.map(withoutCommand)
  for (const property of KEPT)
    if (property in error) copy[property] = (error as NodeJS.ErrnoException)[property as 'code']
  return copy
}

function hidden(value: unknown): PropertyDescriptor {
  return { value, configurable: true, writable: true, enumerable: false }
}
