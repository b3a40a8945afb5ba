/** Applications of Nest for tests, without the syntax of decorators: they are applied by hand, in any order. */
import 'reflect-metadata'
import {
  type DynamicModule,
  type INestApplicationContext,
  type LoggerService,
  Module,
  type ModuleMetadata,
  type Type,
} from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { beforeEach, onTestFinished } from 'vitest'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { HoldfastModule, type HoldfastModuleOptions } from '../../src/frameworks/nest/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'

/** Any decorator of a method. */
export type Decorate = (target: object, key: string, descriptor: PropertyDescriptor) => unknown

/** As the compiler does it: the last one first, as they are written above a method. */
export function decorate(type: Type, key: string, ...written: readonly unknown[]): void {
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, key) as PropertyDescriptor
  for (const one of written.toReversed()) (one as Decorate)(type.prototype, key, descriptor)
  Object.defineProperty(type.prototype, key, descriptor)
}

export function moduleOf(metadata: ModuleMetadata): Type {
  class Made {}
  Module(metadata)(Made)
  return Made
}

/** An application without a server. */
export async function contextOf(
  metadata: ModuleMetadata,
  logger: LoggerService | false = false,
): Promise<INestApplicationContext> {
  return await NestFactory.createApplicationContext(moduleOf(metadata), { logger, abortOnError: false })
}

/** A log of what is more than news: `warn HoldfastModule: …`, `error Scheduler: …`. */
export function keptLog(): { readonly lines: string[]; readonly logger: LoggerService } {
  const lines: string[] = []
  const keep =
    (level: string) =>
    (message: unknown, ...others: unknown[]): void => {
      lines.push(`${level} ${String(others.at(-1))}: ${String(message)}`)
    }
  return { lines, logger: { log: () => {}, warn: keep('warn'), error: keep('error') } }
}

/** Closed when the test ends, the last one first. */
export function closedAtEnd<Closing extends { close(): Promise<unknown> }>(one: Closing): Closing {
  onTestFinished(async () => void (await one.close()))
  return one
}

/** What the tests of a file open. All of it has one server in memory, which is new for each test. */
export class NestHosts {
  #server = new MemoryServer()

  constructor() {
    beforeEach(() => {
      this.#server = new MemoryServer()
    })
  }

  get module(): DynamicModule {
    return this.moduleWith({})
  }

  moduleWith(options: HoldfastModuleOptions): DynamicModule {
    return HoldfastModule.forRoot({ engine: memory({ server: this.#server }), ...options })
  }

  async application(...providers: Type[]): Promise<INestApplicationContext> {
    return closedAtEnd(await contextOf({ imports: [this.module], providers }))
  }

  locks(): Locks {
    return closedAtEnd(createLocks(memory({ server: this.#server })))
  }
}
