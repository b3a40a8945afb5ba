/**
 * Running code outside of any async context of the user's.
 *
 * A timer or a tick runs in the context in which it was set. Ours serve all callers of a process: the first caller sets
 * them, perhaps inside the work of its `using`, and they tell other callers of losses and news. Without this, those
 * other callers would run "inside" the first one's work (and nest in its lease), and its context would be kept alive
 * for as long as our timers are.
 */
import { AsyncResource } from 'node:async_hooks'

/** Made when the module is loaded: outside of any work. */
const noContext = new AsyncResource('holdfast')

export function withoutContext(run: () => void): void {
  noContext.runInAsyncScope(run)
}
