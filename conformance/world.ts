/**
 * The world an engine is tried in: what the engine's test file says about its deployment.
 *
 * Only `engine` is required. Whatever else is there makes more cases apply; whatever is missing makes cases *not
 * applicable*, with the reason in `lacks`, or a general one. Nothing here knows a particular engine.
 *
 *     const world: World = {
 *       engine: () => redis({ url }),
 *       actor: () => ({ module: 'holdfast/redis', export: 'redis', options: { url } }),
 *       restart: (how) => server.restart(how),
 *     }
 */
import type { Engine, Traits } from '../src/core/engine.ts'
import type { StoreTraits } from '../src/core/store.ts'

/**
 * How another process gets a client: it imports `module`, calls what is exported as `export` with `options`, and awaits
 * it.
 */
export interface EngineModule {
  /** A package name or the URL of a file. */
  readonly module: string
  readonly export: string
  /** Whatever survives a structured clone. */
  readonly options?: unknown
}

/**
 * How an actor, a process of its own, gets its client; and how to cut it off from the server, where that is possible.
 */
export interface ActorModule extends EngineModule {
  /** From now on nothing passes between this process and the server, and neither is told. */
  cut?(): void | Promise<void>
  /** All connections between this process and the server break, and new ones are refused. */
  refuse?(): void | Promise<void>
  /** The end of either. */
  heal?(): void | Promise<void>
}

/** What a world, or its engine, may lack. */
export type Ability =
  | 'actor'
  | 'restart'
  | 'leftovers'
  | 'ending'
  | 'outliving'
  | 'politeEviction'
  | 'shownEviction'
  | 'watching'
  | 'yielding'

/** Where a case runs: engines on one server, and the time. */
export interface World {
  /** One more client of the same server, in this process. */
  engine(): Engine | Promise<Engine>
  /** One more client, in a process of its own, which will be killed, stopped and cut off. */
  actor?(): ActorModule | Promise<ActorModule>
  /** End the server and start it again, with what it has stored. `killed`: with SIGKILL. */
  restart?(how: 'cleanly' | 'killed'): Promise<void>
  /** Whether lines survive a restart. Where they do, a lease that is renewed in time does too. */
  readonly restartKeepsLines?: boolean
  /**
   * What is stored, beside what the engine always keeps (a counter): rows, keys, files, one string each. The same after
   * a line is empty as before it was used.
   */
  leftovers?(): readonly string[] | Promise<readonly string[]>
  /** Why an ability is missing, for the report. */
  readonly lacks?: { readonly [Name in Ability]?: string }
  /** When all cases are done. */
  close?(): void | Promise<void>
}

/** What a need is judged by. */
export interface Deployment {
  readonly world: World
  /** The name of the engine. */
  readonly engine: string
  readonly traits: Traits
  /** The engine sends news. */
  readonly wakes: boolean
  /** The engine lets observers watch a line. */
  readonly watches: boolean
  /** The traits of its store, if it has one. */
  readonly store: StoreTraits | undefined
}
