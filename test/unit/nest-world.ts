/** Applications of Nest for tests, without the syntax of decorators: they are applied by hand, in any order. */
import 'reflect-metadata'
import { type INestApplicationContext, Module, type ModuleMetadata, type Type } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'

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
export async function contextOf(metadata: ModuleMetadata): Promise<INestApplicationContext> {
  return await NestFactory.createApplicationContext(moduleOf(metadata), { logger: false, abortOnError: false })
}
