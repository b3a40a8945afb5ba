/**
 * What a hook of Fastify returns when it has answered a request: a promise that never settles, and keeps nothing alive.
 *
 * Fastify goes on to the handler when a hook settles, unless the reply is sent by then. A hook that returns the reply,
 * as the documentation has it, settles also when the client has gone. If an `onSend` hook of the application still
 * waits at that moment, the handler runs for a request that was answered.
 */
export function never(): Promise<never> {
  return new Promise(() => {})
}
