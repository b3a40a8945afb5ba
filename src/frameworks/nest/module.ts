/**
 * The module: it opens the locks when the application starts, hands them out, and drains and closes them when it ends,
 * after the last request has been answered. An engine that can never answer keeps the application from starting
 * (../open.ts). Two modules with different names are two engines.
 */
import {
  type ConfigurableModuleAsyncOptions,
  ConfigurableModuleBuilder,
  type ConfigurableModuleCls,
  type DynamicModule,
  Inject,
  Logger,
  Module,
  type OnApplicationShutdown,
} from '@nestjs/common'
import { checkOptions } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import { OPEN_OPTIONS, type OpenedLocks, type OpenOptions, openLocks } from '../open.ts'
import { HoldfastHealth } from './health.ts'
import { locksToken } from './tokens.ts'

/** Options of `HoldfastModule`: where the locks come from, and those of `connect()`. */
export interface HoldfastModuleOptions extends OpenOptions {}

/** What is known before the options are. */
export interface HoldfastModuleExtras {
  /** Whether all modules of the application see the locks: false unless given. */
  readonly isGlobal?: boolean | undefined
  /** What these locks are called, where there are others: for `@InjectLocks(name)` and `{ module: name }`. */
  readonly name?: string | undefined
}

/** Options of `HoldfastModule.forRootAsync()`: `useFactory`, `inject` and `imports`, as in every module of Nest. */
export type HoldfastModuleAsyncOptions = ConfigurableModuleAsyncOptions<HoldfastModuleOptions> & HoldfastModuleExtras

type Configurable = ConfigurableModuleCls<HoldfastModuleOptions, 'forRoot', 'create', HoldfastModuleExtras>

const OPENED = Symbol('holdfast:opened')

const built = new ConfigurableModuleBuilder<HoldfastModuleOptions>()
  .setClassMethodName('forRoot')
  .setExtras<HoldfastModuleExtras>({ isGlobal: false, name: undefined }, (definition, { isGlobal, name }) => ({
    ...definition,
    global: isGlobal ?? false,
    providers: [...(definition.providers ?? []), ...providersOf(name)],
    // Locks with a name have no indicator of their own: two would be one and the same token.
    exports: [locksToken(name), ...(name === undefined ? [HoldfastHealth] : [])],
  }))
  .build()

const Base: Configurable = built.ConfigurableModuleClass

function providersOf(name: string | undefined): NonNullable<DynamicModule['providers']> {
  const open = (options: HoldfastModuleOptions): Promise<OpenedLocks> => {
    checkOptions('HoldfastModule', options, OPEN_OPTIONS)
    return openLocks(options, (message) => new Logger('HoldfastModule').warn(message))
  }
  return [
    { provide: OPENED, inject: [built.MODULE_OPTIONS_TOKEN], useFactory: open },
    { provide: locksToken(name), inject: [OPENED], useFactory: ({ locks }: OpenedLocks) => locks },
    { provide: HoldfastHealth, inject: [locksToken(name)], useFactory: (locks: Locks) => new HoldfastHealth(locks) },
  ]
}

/** Locks for an application of Nest. */
export class HoldfastModule extends Base implements OnApplicationShutdown {
  readonly #opened: OpenedLocks

  constructor(opened: OpenedLocks) {
    super()
    this.#opened = opened
  }

  /** Locks by URL, on an engine, or those that you have made. */
  static override forRoot(options: HoldfastModuleOptions & HoldfastModuleExtras = {}): DynamicModule {
    // biome-ignore lint/complexity/noThisInStatic: `super` alone makes a module of this class.
    return super.forRoot(options)
  }

  /** The same, with options that have to be asked for: `forRootAsync({ inject: [ConfigService], useFactory })`. */
  static override forRootAsync(options: HoldfastModuleAsyncOptions): DynamicModule {
    // biome-ignore lint/complexity/noThisInStatic: `super` alone makes a module of this class.
    return super.forRootAsync(options)
  }

  /** Nest calls it after it has answered the last request. What still holds has `grace` to end. */
  async onApplicationShutdown(): Promise<void> {
    await this.#opened.end()
  }
}

Module({})(HoldfastModule)
Inject(OPENED)(HoldfastModule, undefined, 0)
