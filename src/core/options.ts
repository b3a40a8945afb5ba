/**
 * Options that no call knows are refused: in JavaScript nothing else tells a user that `{ tll: '5s' }` does nothing.
 * One that is undefined is one that is not given.
 *
 * Each kind of options has one table of its names, of the type `OptionNames<...>`, beside its interface. An option that
 * is missing in the table, or too many there, does not compile.
 */
import { nearest } from './did-you-mean.ts'
import { FOREIGN_OPTIONS, OWN_OPTIONS } from './option-hints.ts'

/** The names of all options of a kind. */
export type OptionNames<Options> = Readonly<Record<keyof Options, true>>

/** Throws a `TypeError` for options that are no object, or have a name that is not `known`. */
export function checkOptions(call: string, options: unknown, known: Readonly<Record<string, true>>): void {
  if (typeof options !== 'object' || options === null) {
    const got = options === null ? 'null' : typeof options
    throw new TypeError(`${call} takes its options as an object with ${Object.keys(known).join(', ')}; got ${got}`)
  }
  for (const name in options) {
    if (known[name] !== true && Object.hasOwn(options, name)) throw unknownOption(call, name, Object.keys(known))
  }
}

/**
 * Those that have a value: what is spread over options of another origin. In JavaScript, and in TypeScript as most
 * configure it, `{ tls: undefined }` is what a program gives that has nothing to say of `tls`.
 */
export function withoutUndefined<Options extends object>(options: Options): Options {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Options
}

function unknownOption(call: string, name: string, known: readonly string[]): TypeError {
  return new TypeError(`unknown option '${name}' in ${call}${hint(name, known)} (known there: ${known.join(', ')})`)
}

function hint(name: string, known: readonly string[]): string {
  if (Object.hasOwn(OWN_OPTIONS, name)) return `: it is ${OWN_OPTIONS[name]}`
  if (Object.hasOwn(FOREIGN_OPTIONS, name)) return `: ${FOREIGN_OPTIONS[name]}`
  const here = nearest(name, known)
  if (here !== undefined) return `; did you mean '${here}'?`
  const elsewhere = nearest(name, Object.keys(OWN_OPTIONS))
  return elsewhere === undefined ? '' : `; did you mean '${elsewhere}'? It is ${OWN_OPTIONS[elsewhere]}`
}
