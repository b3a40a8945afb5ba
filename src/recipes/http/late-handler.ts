/**
 * Handlers that still work when their response was taken from them, because they took too long for example. The answer
 * that takes its place is written into the same object, by the framework, so until it has ended the two cannot be told
 * apart. From then on, what a handler does with its response has no effect.
 *
 * Node and Express would make something of it: an error that is thrown in a callback and ends the process, or a
 * connection that is cut off, which carries another request by then.
 */
import type { ServerResponse } from 'node:http'
import { isHttp2 } from './head.ts'

type Act = (...given: unknown[]) => unknown

/** Each throws, in Node, when the head was sent. */
const OF_HEAD = ['setHeader', 'setHeaders', 'appendHeader', 'removeHeader', 'writeHead'] as const

/** The answer that takes its place comes next. */
export function quietWhenAnswered(response: ServerResponse): void {
  const acts = response as unknown as Record<string, Act | undefined>
  let [wasEnded, isClosed] = [false, false]
  const wrap = (name: string, isLate: () => boolean, instead: unknown): void => {
    const own = acts[name]
    if (own === undefined) return
    acts[name] = (...given) => {
      if (isLate()) {
        callBack(given)
        return instead
      }
      const done = Reflect.apply(own, response, given)
      // If that throws, the framework answers in another way.
      if (name === 'end') wasEnded = true
      return done
    }
  }
  // By what was sent, and not by what was asked for: middleware before the guard may put off the end.
  const isHeadSent = (): boolean => isClosed || response.headersSent
  const hasEnded = (): boolean => isClosed || wasEnded || response.writableEnded
  for (const name of OF_HEAD) wrap(name, isHeadSent, response)
  // The end of HTTP/2 writes its chunk by this very function, also where middleware has put that end off.
  wrap('write', isHttp2(response) ? () => isClosed || response.writableEnded : hasEnded, true)
  wrap('end', hasEnded, response)
  response.once('close', () => {
    // Its other listeners may log what was sent.
    queueMicrotask(() => {
      if (!response.headersSent) return
      isClosed = true
      // Where a head was sent, Express cuts off the connection of a request that fails.
      Object.defineProperty(response, 'headersSent', { value: false, configurable: true })
    })
  })
}

/** A handler that waits for what it has written goes on. */
function callBack(given: readonly unknown[]): void {
  const callback = given.find((one) => typeof one === 'function')
  if (callback !== undefined) process.nextTick(callback as () => void)
}
