/** What users give to `replace()`, and what they get back. */
import { type Duration, parseDuration } from '../../core/duration.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { LIST_OPTIONS, type ListOptions } from './list-record.ts'
import type { Turn } from './turn.ts'

/**
 * What an upload does about one that is going on. `wins`: that one is told to stop, and cannot write any more. `waits`:
 * it comes after that one, in order of arrival. `fails`: `InProgressError` at once.
 */
export type Newest = 'wins' | 'waits' | 'fails'

/** Options of `replace()`. */
export interface ReplaceOptions extends ListOptions {
  /** What to do about an upload that is going on: `wins` unless given. */
  readonly newest?: Newest
  /**
   * Which upload this is, the same for all its attempts: an attempt after a crash goes on where the one before it has
   * stopped. That of `order` unless given; without both, every call is an upload of its own.
   */
  readonly upload?: string
  /**
   * Which upload is newer, by a number of yours: a version of the file, the time at which it was sent. An upload whose
   * number is lower than one that was accepted is refused. By arrival unless given.
   */
  readonly order?: number
  /** How long to wait for the one before it to end: for ever unless given. Then: `AcquireTimeoutError`. */
  readonly wait?: Duration
  /** How long an upload lives without renewal: after a crash, the next one waits this long. The ttl of
   * the locks unless given. */
  readonly ttl?: Duration
  /** Cancels the waiting, not the work. The call rejects with the signal's own reason. */
  readonly signal?: AbortSignal
}

/** The work. Its last step is `turn.publish()`. */
export type ReplaceWork<Value> = (turn: Turn) => Promise<Value> | Value

/** What `replace()` answers. */
export type ReplaceResult<Value> =
  /** The work has published it. `value` is what the work has answered. */
  | { readonly state: 'published'; readonly generation: number; readonly value: Value }
  /** It was published already: by an attempt before this one, or by this one, whose work has thrown after it. */
  | { readonly state: 'already'; readonly generation: number }

const REPLACE_OPTIONS: OptionNames<ReplaceOptions> = {
  ...LIST_OPTIONS,
  newest: true,
  upload: true,
  order: true,
  wait: true,
  ttl: true,
  signal: true,
}

const NEWEST: readonly Newest[] = ['wins', 'waits', 'fails']
/** A hundred of them are remembered in the record, which has 64 KiB. */
const LONGEST_UPLOAD_BYTES = 256

/** The options of one call, read. */
export interface ReplaceCall {
  readonly newest: Newest
  readonly upload: string | undefined
  readonly order: number | undefined
  readonly waitMs: number
  readonly lockOptions: Pick<ReplaceOptions, 'ttl'>
  readonly signal: AbortSignal | undefined
}

/** Throws a `TypeError` or a `RangeError`. */
export function readOptions(options: ReplaceOptions): ReplaceCall {
  checkOptions('replace()', options, REPLACE_OPTIONS)
  const { newest = 'wins', order, wait, ttl, signal } = options
  if (!NEWEST.includes(newest))
    throw new TypeError(`newest must be ${NEWEST.map((one) => `'${one}'`).join(', ')}; got '${String(newest)}'`)
  if (order !== undefined && !Number.isSafeInteger(order))
    throw new RangeError(`order must be a whole number that is exact; got ${String(order)}`)
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new TypeError(`signal must be an AbortSignal; got ${typeof signal}`)
  return {
    newest,
    upload: uploadOf(options),
    order,
    waitMs: wait === undefined ? Number.POSITIVE_INFINITY : parseDuration(wait, 'wait'),
    lockOptions: ttl === undefined ? {} : { ttl },
    signal,
  }
}

function uploadOf({ upload, order }: ReplaceOptions): string | undefined {
  if (upload === undefined) return order === undefined ? undefined : `order ${order}`
  if (typeof upload !== 'string' || upload === '')
    throw new TypeError(`upload must be a string that is not empty; got ${upload === '' ? "''" : typeof upload}`)
  if (Buffer.byteLength(JSON.stringify(upload)) <= LONGEST_UPLOAD_BYTES) return upload
  throw new RangeError(`upload must have at most ${LONGEST_UPLOAD_BYTES} bytes as JSON: it is an id`)
}
