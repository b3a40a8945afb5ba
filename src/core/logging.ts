/**
 * Logs, for those who hand in a logger: pino, or anything with its four methods. Silent otherwise.
 *
 * What goes right is `debug`; what a person on call may want to read is `info` and above. Ordinary contention is never
 * a warning.
 */
import { type Events, type Operation, type Publish, publish } from './diagnostics.ts'

/** The shape of pino's methods: fields first, then a sentence. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** Publish on the channels, and tell `logger` too. */
export function publishAndLog(logger: Logger): Publish {
  return {
    ask: publish.ask,
    grant: tee(publish.grant, ({ operation, token, waitedMs, queued }) =>
      logger.debug({ ...subject(operation), token: String(token), waitedMs, queued }, `acquired '${operation.key}'`),
    ),
    refuse: tee(publish.refuse, ({ operation, waitedMs, why, error }) => {
      const fields = { ...subject(operation), waitedMs, why, ...(error === undefined ? {} : { err: error }) }
      if (why === 'error') logger.error(fields, `could not acquire '${operation.key}'`)
      else logger.debug(fields, `did not acquire '${operation.key}'`)
    }),
    release: tee(publish.release, ({ operation, heldMs, lost }) =>
      logger.debug({ ...subject(operation), heldMs, lost }, `released '${operation.key}'`),
    ),
    renew: tee(publish.renew, (fields) => logger.debug(fields, 'renewed')),
    jeopardy: tee(publish.jeopardy, ({ operation, token, remainingMs, error }) =>
      logger.warn(
        { ...subject(operation), token: String(token), remainingMs, err: error },
        `'${operation.key}' was not renewed for two thirds of its time`,
      ),
    ),
    lost: tee(publish.lost, ({ operation, token, why }) =>
      logger.error({ ...subject(operation), token: String(token), why }, `lost '${operation.key}'`),
    ),
    failed: tee(publish.failed, ({ engine, verb, key, error }) =>
      logger.warn({ engine, verb, key, outcome: error.outcome, err: error }, `${verb} failed`),
    ),
    resolved: tee(publish.resolved, (fields) => logger.info(fields, 'cleaned up after an enter of unknown outcome')),
    order: tee(publish.order, ({ message, ...fields }) => logger.warn(fields, message)),
  }
}

function tee<Message extends Events[keyof Events]>(
  tell: (message: Message) => void,
  log: (message: Message) => void,
): (message: Message) => void {
  return (message) => {
    tell(message)
    try {
      log(message)
    } catch (error) {
      // A lock does not fail because a log did.
      process.emitWarning(`a logger threw: ${error instanceof Error ? error.message : String(error)}`, {
        code: 'HOLDFAST_LOGGER',
      })
    }
  }
}

function subject({ engine, key }: Operation): { engine: string; key: string } {
  return { engine, key }
}
