/**
 * One at a time for each client. A lock is several statements (a savepoint, a time-out, the question, and back), and
 * those of two calls that a caller makes at once on one connection must not mix.
 */

const last = new WeakMap<object, Promise<unknown>>()

export async function inTurn<Result>(client: object, work: () => Promise<Result>): Promise<Result> {
  const before = last.get(client)
  const working = before === undefined ? work() : before.then(work)
  const settled = working.then(
    () => undefined,
    () => undefined,
  )
  last.set(client, settled)
  return await working
}
