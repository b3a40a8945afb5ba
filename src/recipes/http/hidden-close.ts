/**
 * The close of a response whose connection has ended, kept from its handler until that has made the response: a stream
 * that is piped into a response stops at its `close`, and never ends it then; and so does one that finds it closed.
 */
import type { ServerResponse } from 'node:http'
import { isHttp2 } from './head.ts'

/** What says that its connection has ended, to those who ask. */
const FLAGS = ['destroyed', 'closed'] as const

export class HiddenClose {
  readonly #response: ServerResponse
  /** They were told before it was hidden, and would count it twice. */
  readonly #toldBefore: ReadonlySet<unknown>
  /** What the flags were. */
  #hidden: readonly (readonly [flag: string, own: PropertyDescriptor | undefined])[] | undefined

  constructor(response: ServerResponse) {
    this.#response = response
    this.#toldBefore = new Set(response.closed ? response.rawListeners('close') : [])
    if (response.destroyed) this.hide()
  }

  hide(): void {
    if (this.#hidden !== undefined) return
    const response = this.#response
    const flags = FLAGS.filter((flag) => flag in response)
    this.#hidden = flags.map((flag) => [flag, Object.getOwnPropertyDescriptor(response, flag)])
    for (const flag of flags)
      Object.defineProperty(response, flag, { value: false, configurable: true, writable: true })
  }

  /** Tell of it, if it was hidden: those who listen soon, in the midst of `telling`. */
  show(telling: (tell: () => void) => void): void {
    if (this.#hidden === undefined) return
    const response = this.#response
    for (const [flag, own] of this.#hidden) {
      Reflect.deleteProperty(response, flag)
      if (own !== undefined) Object.defineProperty(response, flag, own)
    }
    this.#hidden = undefined
    process.nextTick(() => telling(() => this.#tell()))
  }

  #tell(): void {
    const response = this.#response
    if (isHttp2(response)) response.emit('finish')
    if (this.#toldBefore.size === 0) {
      response.emit('close')
      return
    }
    for (const listener of response.rawListeners('close'))
      if (!this.#toldBefore.has(listener)) Reflect.apply(listener, response, [])
  }
}
