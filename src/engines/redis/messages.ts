/**
 * What the scripts send to the channel of an engine: which waiter holds now, which entry was evicted, and which line an
 * observer should look at.
 *
 * Messages, separated by NUL; each is `<id> <token, or - if it was evicted> <for how long it is held (ms)> <K>`, or
 * `! - 0 <K>`. Any client of the server may publish to the channel: what makes no sense is nothing.
 */
import type { News } from '../../core/engine.ts'

const TOKEN_AND_MS = /^\d+ \d+$/

export interface MessageReader {
  news(news: News): void
  /** A line that an observer watches may have changed. */
  changed(key: string): void
}

export function readMessages(text: string, keyOf: (K: string) => string, reader: MessageReader): void {
  if (text.includes('\0')) for (const message of text.split('\0')) readMessage(message, keyOf, reader)
  else readMessage(text, keyOf, reader)
}

/** By hand, and not by a regular expression, because a waiter waits for just this. */
function readMessage(message: string, keyOf: (K: string) => string, reader: MessageReader): void {
  const afterId = message.indexOf(' ')
  const afterToken = message.indexOf(' ', afterId + 1)
  const afterMs = message.indexOf(' ', afterToken + 1)
  if (afterId < 1 || afterToken < 0 || afterMs < 0) return
  const id = message.slice(0, afterId)
  const token = message.slice(afterId + 1, afterToken)
  const key = keyOf(message.slice(afterMs + 1))
  if (id === '!') reader.changed(key)
  else if (token === '-') reader.news({ key, id, standing: { state: 'gone', why: 'evicted' } })
  else if (TOKEN_AND_MS.test(message.slice(afterId + 1, afterMs))) {
    const heldForMs = Number(message.slice(afterToken + 1, afterMs))
    reader.news({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs } })
  }
}
