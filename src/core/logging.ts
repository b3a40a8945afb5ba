/**
 * Logs, for users who hand in a logger: pino, or anything with its four methods. Silent otherwise.
 *
 * What goes right is `debug`; what a person on call may want to read is `info` and above. Ordinary contention is never
 * a warning.
 */
import { channels, type Events, type Operation, type Publish, publish } from './diagnostics.ts'

/** The shape of pino's methods: fields first, then a sentence. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** What has failed: a verb of the engine, in the words of users. That is for a holder. */
const DOING = { enter: 'acquiring', renew: 'renewing', leave: 'releasing' } as const
/** The same for a caller that holds nothing: it waits, or has given up. */
const ASKING = {
  enter: (key: string) => `acquiring '${key}' failed`,
  renew: (key: string) => `asking for the place of '${key}' in line failed`,
  leave: (key: string) => `leaving the line of '${key}' failed`,
} as const

/** Publish on the channels, and tell `logger` too. */
export function publishAndLog(logger: Logger): Publish {
  return {
    request: publish.request,
    grant: tee(publish.grant, ({ operation, token, waitedMs, queued }) =>
      logger.debug({ ...subject(operation), token: String(token), waitedMs, queued }, `acquired '${operation.key}'`),
    ),
    refusal: tee(publish.refusal, ({ operation, waitedMs, why, error }) => {
      const fields = { ...subject(operation), waitedMs, why, ...(error === undefined ? {} : { err: error }) }
      if (why === 'error') logger.error(fields, `could not acquire '${operation.key}'`)
      else logger.debug(fields, `did not acquire '${operation.key}'`)
    }),
    release: tee(publish.release, ({ operation, heldMs, why }) =>
      logger.debug({ ...subject(operation), heldMs, why }, `released '${operation.key}'`),
    ),
    renewal: tee(publish.renewal, (fields) => logger.debug(fields, 'renewed')),
    jeopardy: tee(publish.jeopardy, ({ operation, token, remainingMs, error }) =>
      logger.warn(
        { ...subject(operation), token: String(token), remainingMs, error: error?.message },
        `'${operation.key}' was not renewed for two thirds of its time`,
      ),
    ),
    loss: tee(publish.loss, ({ operation, token, why }) =>
      logger.error({ ...subject(operation), token: String(token), why }, `lost '${operation.key}'`),
    ),
    // The message of the error, and not its stack: during an outage there is one for each renewal of each lease. Those
    // who wait lose nothing by one: their outage is told as a warning, and by the error that ends their wait.
    failure: tee(publish.failure, ({ operation, verb, held, error }) => {
      const { key } = operation
      const fields = { ...subject(operation), verb, outcome: error.outcome, error: error.message }
      if (held) logger.warn(fields, `${DOING[verb]} '${key}' failed`)
      else logger.debug(fields, ASKING[verb](key))
    }),
    cleanup: tee(publish.cleanup, ({ operation, wasThere }) =>
      logger.info({ ...subject(operation), wasThere }, 'cleaned up after an enter of unknown outcome'),
    ),
    inversion: tee(publish.inversion, ({ message, ...fields }) => logger.warn(fields, message)),
    // Only those of the core, which are about an acquire. Engines publish theirs by themselves: see logWarnings.
    warning: tee(publish.warning, ({ engine, name, message, operation }) =>
      logger.warn({ engine, key: operation?.key, name }, message),
    ),
    sample: tee(publish.sample, ({ engine, lines, unsampled, tookMs, error, over }) => {
      if (error !== undefined) logger.warn({ engine, tookMs, err: error }, 'could not sample lines')
      else if (!over) logger.debug({ engine, tookMs, unsampled }, `sampled ${lines.length} lines`)
    }),
  }
}

/** How many `logWarnings` are open for each logger. */
const warned = new Map<Logger, { count: number; readonly stop: () => void }>()

/**
 * Tell `logger` the warnings of all engines of this process, until the returned function is called. A warning does not
 * say to which locks its engine belongs, so that a logger which several locks share is told once.
 */
export function logWarnings(logger: Logger): () => void {
  const open = warned.get(logger) ?? { count: 0, stop: listen(logger) }
  open.count += 1
  warned.set(logger, open)
  return () => {
    open.count -= 1
    if (open.count > 0) return
    warned.delete(logger)
    open.stop()
  }
}

function listen(logger: Logger): () => void {
  const log = logSafely(({ message, operation, ...fields }: Events['warning']) => {
    // About an acquire: the logger of its own locks is told, by publishAndLog.
    if (operation === undefined) logger.warn(fields, message)
  })
  const listener = (message: unknown): void => log(message as Events['warning'])
  channels.warning.subscribe(listener)
  return () => channels.warning.unsubscribe(listener)
}

function tee<Message extends Events[keyof Events]>(
  tell: (message: Message) => void,
  log: (message: Message) => void,
): (message: Message) => void {
  const logged = logSafely(log)
  return (message) => {
    tell(message)
    logged(message)
  }
}

/** A lock does not fail because a log did. */
function logSafely<Message>(log: (message: Message) => void): (message: Message) => void {
  return (message) => {
    try {
      log(message)
    } catch (error) {
      process.emitWarning(`a logger threw: ${error instanceof Error ? error.message : String(error)}`, {
        code: 'HOLDFAST_LOGGER',
      })
    }
  }
}

function subject({ engine, key }: Operation): { engine: string; key: string } {
  return { engine, key }
}
