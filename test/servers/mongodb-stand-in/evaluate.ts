/**
 * Expressions, filters and pipelines, evaluated by the package mingo with the operators of operators.ts.
 *
 * A pipeline is looked through before it runs, as a server's parser does: an operator that MongoDB 5.0 does not have is
 * refused even in a branch that is never taken.
 */
import { Aggregator } from 'mingo/aggregator'
import { Context, evalExpr, ProcessingMode } from 'mingo/core'
import { type Iterator as Documents, Lazy } from 'mingo/lazy'
import * as accumulators from 'mingo/operators/accumulator'
import * as expressions from 'mingo/operators/expression'
import * as stages from 'mingo/operators/pipeline'
import * as projections from 'mingo/operators/projection'
import * as queries from 'mingo/operators/query'
import { Query } from 'mingo/query'
import type { Options } from 'mingo/types'
import { CommandError } from './errors.ts'
import { EXPRESSIONS } from './operators.ts'
import { valuesAt } from './paths.ts'
import { sorted } from './sorting.ts'
import { compare, type Document, equal, isNothing, isPlain, rankOf } from './values.ts'

// mingo writes every filter into a message that it then does not need, and JSON has no bigint.
Object.defineProperty(BigInt.prototype, 'toJSON', {
  configurable: true,
  value(this: bigint) {
    return String(this)
  },
})

/** Operators of expressions that came after 5.0. */
const LATER = new Set(
  '$sortArray $firstN $lastN $maxN $minN $median $percentile $bitAnd $bitOr $bitXor $bitNot $toHashedIndexKey $sigmoid'.split(
    ' ',
  ),
)

/** Operators that MongoDB 5.0 has. */
const KNOWN: ReadonlySet<string> = new Set(
  [expressions, EXPRESSIONS, accumulators].flatMap((each) => Object.keys(each)).filter((name) => !LATER.has(name)),
)

/** Stages whose argument is expressions and nothing else. */
const COMPUTING = new Set(['$set', '$addFields', '$project', '$replaceWith', '$replaceRoot', '$group'])

type Test = (document: unknown) => boolean

/** A comparison in a filter: one of the values at the path has to pass. */
function some(test: (value: unknown, argument: unknown) => boolean, inverted = false) {
  return (path: string, argument: unknown): Test => {
    const names = path.split('.')
    return (document) => valuesAt(document, names).some((value) => test(value, argument)) !== inverted
  }
}

const same = (value: unknown, argument: unknown): boolean =>
  isNothing(argument) ? isNothing(value) : !isNothing(value) && equal(value, argument)
const oneOf = (value: unknown, argument: unknown): boolean =>
  (argument as unknown[]).some((each) =>
    each instanceof RegExp ? typeof value === 'string' && each.test(value) : same(value, each),
  )
const ordered = (test: (by: number) => boolean) => (value: unknown, argument: unknown) =>
  rankOf(value) === rankOf(argument) && value !== undefined && test(compare(value, argument))

const FILTERS = {
  $eq: some(same),
  $ne: some(same, true),
  $in: some(oneOf),
  $nin: some(oneOf, true),
  $gt: some(ordered((by) => by > 0)),
  $gte: some(ordered((by) => by >= 0)),
  $lt: some(ordered((by) => by < 0)),
  $lte: some(ordered((by) => by <= 0)),
}

/** A nested object in $set sets the fields that it names and leaves the others: mingo replaces the whole. */
function set(documents: Documents, fields: Document, options: Options): Documents {
  return documents.map((document: unknown) => setFields(document as Document, fields, options))
}

export function setFields(document: Document, fields: Document, options: Options): Document {
  return Object.entries(fields).reduce(
    (target, [path, value]) => setField(target, path.split('.'), value, document, options) as Document,
    document,
  )
}

function setField(target: unknown, path: readonly string[], value: unknown, root: Document, options: Options): unknown {
  const [name, ...rest] = path
  if (name === undefined) {
    if (!isPlain(value) || Object.keys(value).some((key) => key.startsWith('$'))) return evalExpr(root, value, options)
    if (Object.keys(value).length === 0)
      throw new CommandError(40180, 'Invalid $set :: caused by :: an empty object is not a valid value')
    if (Array.isArray(target)) return target.map((each) => setField(each, path, value, root, options))
    return Object.entries(value).reduce<unknown>(
      (at, [key, inner]) => setField(at, key.split('.'), inner, root, options),
      isPlain(target) ? target : {},
    )
  }
  if (Array.isArray(target)) return target.map((each) => setField(each, path, value, root, options))
  const copy: Document = isPlain(target) ? { ...target } : {}
  const inner = setField(copy[name], rest, value, root, options)
  if (inner === undefined) delete copy[name]
  else copy[name] = inner
  return copy
}

/** mingo sorts texts by their UTF-16 units. */
function sort(documents: Documents, spec: Document): Documents {
  return documents.transform((all: unknown[]) => Lazy(sorted(all as Document[], spec)))
}

const context = Context.init({
  accumulator: accumulators as never,
  expression: { ...expressions, ...EXPRESSIONS } as never,
  pipeline: { ...stages, $set: set, $addFields: set, $sort: sort } as never,
  projection: projections as never,
  query: { ...queries, ...FILTERS } as never,
})

/** What every evaluation is given; `variables` are those of the command's `let`. */
export function optionsFor(variables: Document = {}, collection?: (name: string) => Document[]): Options {
  return {
    idKey: '_id',
    processingMode: ProcessingMode.CLONE_OFF,
    useStrictMode: true,
    scriptEnabled: false,
    failOnError: true,
    context,
    variables,
    ...(collection === undefined ? {} : { collectionResolver: collection }),
  }
}

/**
 * The work, during which `$$NOW` is one instant. mingo asks the clock anew in each stage; since nothing here waits, the
 * clock can be held meanwhile.
 */
export function atOneInstant<Result>(work: () => Result, now: number = Date.now()): Result {
  const clock = Date.now
  Date.now = () => now
  try {
    return work()
  } finally {
    Date.now = clock
  }
}

export function filter(criteria: Document, variables?: Document): Test {
  const query = new Query(criteria, optionsFor(variables))
  return (document) => query.test(document as Document)
}

export function runPipeline(
  documents: readonly Document[],
  pipeline: readonly Document[],
  options: Options,
): Document[] {
  for (const stage of pipeline) {
    const name = Object.keys(stage)[0] ?? ''
    if (!(name in stages)) throw new CommandError(40324, `Unrecognized pipeline stage name: '${name}'`)
    if (name === '$out' || name === '$merge') throw new CommandError(59, `the stand-in has no ${name}`)
    if (COMPUTING.has(name)) checkExpression(stage[name])
  }
  return new Aggregator([...pipeline], options).run(documents)
}

/** Refuse operators that a server would not know. */
export function checkExpression(written: unknown): void {
  if (Array.isArray(written)) for (const each of written) checkExpression(each)
  if (!isPlain(written)) return
  for (const name of Object.keys(written)) {
    if (name === '$literal') continue
    if (name.startsWith('$') && !KNOWN.has(name))
      throw new CommandError(168, `Invalid $set :: caused by :: Unrecognized expression '${name}'`)
    checkExpression(written[name])
  }
}
