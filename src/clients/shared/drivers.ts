/** What all clients of servers need to know of drivers: telling them apart, and outliving their errors. */

/**
 * Whether `client` has these methods. Drivers are told apart by their methods: names of classes do not survive bundlers
 * and second copies of a package.
 */
export function hasMethods(client: unknown, ...methods: readonly string[]): client is object {
  if ((typeof client !== 'object' && typeof client !== 'function') || client === null) return false
  return methods.every((method) => typeof (client as Record<string, unknown>)[method] === 'function')
}

/** Clients whose errors are listened to for good. */
const listened = new WeakSet<object>()

/**
 * Without a listener for its errors, a client ends the process at the first blip. Ours stays when the engine is closed:
 * the user who brought the client may have relied on it.
 */
export function neverCrash(client: { on(event: 'error', listener: () => void): unknown }): void {
  if (listened.has(client)) return
  listened.add(client)
  client.on('error', () => undefined)
}
