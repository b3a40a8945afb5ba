/**
 * `holdfast/nest`: locks in an application of NestJS.
 *
 *     @Module({ imports: [HoldfastModule.forRoot({ url: 'redis://cache' })], providers: [Orders] })
 *     class App {}
 *
 *     class Orders {
 *       @Locked('order:{0.id}', { wait: '5s' })
 *       async ship(order: Order) { … }
 *     }
 *
 * Read module.ts, then wrap.ts (what becomes of a method), then the decorators: locked.ts, once.ts, once-per-tick.ts.
 */

export type { OpenOptions } from '../open.ts'
export { currentAttempt, currentLease } from './current.ts'
export { HoldfastFilter } from './filter.ts'
export { type HealthOfLocks, HoldfastHealth } from './health.ts'
export type { KeyOfCall } from './key-template.ts'
export { Locked, type LockedOptions } from './locked.ts'
export {
  HoldfastModule,
  type HoldfastModuleAsyncOptions,
  type HoldfastModuleExtras,
  type HoldfastModuleOptions,
} from './module.ts'
export { Once, type OnceMethodOptions } from './once.ts'
export { OncePerTick, type OncePerTickOptions } from './once-per-tick.ts'
export { InjectLocks, type LocksOfDecorator, locksToken } from './tokens.ts'
export type { MethodWrapper } from './wrap.ts'
