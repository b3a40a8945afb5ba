/**
 * Outside of everybody's async context.
 *
 * A timer or a tick runs in the context in which it was set. Ours serve everyone: set by whoever asked first, perhaps
 * inside somebody's `using`, they dispatch losses and news to others. Without this, those others would run "inside" the
 * first one's work (and nest in its lease), and its context would be kept alive for as long as our timers are.
 */
import { AsyncResource } from 'node:async_hooks'

/** Made when the module is loaded: in nobody's context. */
const nobody = new AsyncResource('holdfast')

export function withoutContext(run: () => void): void {
  nobody.runInAsyncScope(run)
}
