/**
 * The kernel's monotonic clock, which all processes of a host read alike.
 *
 * On Node it is `process.hrtime`. On Bun and Deno that begins at zero with each process: two processes would disagree
 * about every ttl in the file, and both hold. There the kernel is asked once, through its C library, how far the two
 * clocks are apart. Where it cannot be asked, locks in a file are refused.
 */
import { refusal } from './errors.ts'

/** Asks for CLOCK_MONOTONIC: writes seconds and nanoseconds, and answers 0. */
type ClockCall = (clock: number, into: BigInt64Array) => number

const CLOCK_MONOTONIC = 1
/** glibc, and musl. */
const LIBRARIES = ['libc.so.6', 'libc.so']
const TRIES = 5

let offsetNs: bigint | undefined

/** Nanoseconds of that clock. Throws where this runtime cannot tell. */
export function monotonicNs(): bigint {
  offsetNs ??= offset()
  return process.hrtime.bigint() + offsetNs
}

function offset(): bigint {
  const { bun, deno } = process.versions
  if (bun === undefined && deno === undefined) return 0n
  const name = bun === undefined ? 'Deno' : 'Bun'
  // Elsewhere the numbers of clocks are others.
  if (process.platform !== 'linux')
    throw refusal(`${name} does not tell the time of the host on this system: use Node, or another engine`)
  const call = firstThatWorks(bun === undefined ? denoCall : bunCall, name)
  return offsetBetweenClocks(call)
}

/** The reading with the least time around it is the best. */
function offsetBetweenClocks(call: ClockCall): bigint {
  let best: { readonly offsetNs: bigint; readonly widthNs: bigint } | undefined
  for (let turn = 0; turn < TRIES; turn += 1) {
    const into = new BigInt64Array(2)
    const before = process.hrtime.bigint()
    if (call(CLOCK_MONOTONIC, into) !== 0) throw refusal('the kernel does not tell the time: use another engine')
    const widthNs = process.hrtime.bigint() - before
    const [seconds = 0n, nanoseconds = 0n] = into
    const found = seconds * 1_000_000_000n + nanoseconds - before - widthNs / 2n
    if (best === undefined || widthNs < best.widthNs) best = { offsetNs: found, widthNs }
  }
  return best?.offsetNs ?? 0n
}

function firstThatWorks(open: (library: string) => ClockCall, name: string): ClockCall {
  let cause: unknown
  for (const library of LIBRARIES) {
    try {
      return open(library)
    } catch (error) {
      cause = error
    }
  }
  const permit = name === 'Deno' ? 'run it with --allow-all, ' : ''
  throw refusal(
    `${name} does not tell the time of the host (${String(cause)}): ${permit}use Node, or another engine`,
    cause,
  )
}

interface BunForeign {
  dlopen(
    library: string,
    symbols: object,
  ): { readonly symbols: { clock_gettime(clock: number, into: unknown): number } }
  ptr(view: BigInt64Array): unknown
}

function bunCall(library: string): ClockCall {
  const { dlopen, ptr } = process.getBuiltinModule('bun:ffi') as unknown as BunForeign
  const { symbols } = dlopen(library, { clock_gettime: { args: ['i32', 'ptr'], returns: 'i32' } })
  return (clock, into) => symbols.clock_gettime(clock, ptr(into))
}

interface DenoForeign {
  dlopen(library: string, symbols: object): { readonly symbols: { clock_gettime: ClockCall } }
}

function denoCall(library: string): ClockCall {
  const { Deno } = globalThis as unknown as { Deno: DenoForeign }
  return Deno.dlopen(library, { clock_gettime: { parameters: ['i32', 'buffer'], result: 'i32' } }).symbols.clock_gettime
}
