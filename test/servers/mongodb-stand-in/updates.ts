/** What an update makes of a document: a pipeline, update operators, or a replacement. */
import { evalExpr } from 'mingo/core'
import { update as mingoUpdate } from 'mingo/updater'
import { bytesOf, read } from './bytes.ts'
import { CommandError } from './errors.ts'
import { checkExpression, optionsFor, runPipeline, setFields } from './evaluate.ts'
import { valueAt, withValue } from './paths.ts'
import { add, compare, type Document, equal, isPlain, multiply } from './values.ts'

export type Update = Document | readonly Document[]

export interface UpdateOptions {
  readonly variables?: Document
  /** The document is about to be inserted: $setOnInsert counts. */
  readonly inserting?: boolean
  /** The filter, for the positional operator. */
  readonly criteria?: Document
  readonly arrayFilters?: Document[]
}

/** The document after the update. `_id` stays, and stays in front. */
export function updated(document: Document, update: Update, options: UpdateOptions = {}): Document {
  const after = Array.isArray(update)
    ? afterPipeline(document, update, options.variables)
    : isReplacement(update as Document)
      ? (update as Document)
      : afterOperators(document, update as Document, options)
  const { _id = document._id, ...rest } = after
  if (document._id !== undefined && !equal(_id, document._id))
    throw new CommandError(66, "Performing an update on the path '_id' would modify the immutable field '_id'")
  return _id === undefined ? rest : { _id, ...rest }
}

export function isReplacement(update: Update): boolean {
  return !Array.isArray(update) && !Object.keys(update).some((name) => name.startsWith('$'))
}

function afterPipeline(document: Document, pipeline: readonly Document[], variables?: Document): Document {
  for (const stage of pipeline) for (const argument of Object.values(stage)) checkExpression(argument)
  const options = optionsFor(variables)
  return pipeline.reduce((before, stage) => {
    const [name = '', argument] = Object.entries(stage)[0] ?? []
    switch (name) {
      case '$set':
      case '$addFields':
        return setFields(before, argument as Document, options)
      case '$replaceWith':
        return rootOf(evalExpr(before, argument, options))
      case '$replaceRoot':
        return rootOf(evalExpr(before, (argument as Document).newRoot, options))
      case '$unset':
      case '$project':
        return runPipeline([before], [stage], options)[0] ?? {}
      default:
        throw new CommandError(72, `${name} is not allowed to be used within an update`)
    }
  }, document)
}

function rootOf(value: unknown): Document {
  if (isPlain(value)) return value
  throw new CommandError(40228, "'newRoot' expression must evaluate to an object")
}

type FieldOperator = (before: unknown, argument: unknown, inserting: boolean) => unknown

const FIELDS: Readonly<Record<string, FieldOperator>> = {
  $set: (_, argument) => argument,
  $setOnInsert: (before, argument, inserting) => (inserting ? argument : before),
  $unset: () => undefined,
  $inc: (before, argument) => (before === undefined ? argument : add(before, argument)),
  $mul: (before, argument) => multiply(before ?? 0, argument),
  $max: (before, argument) => (before === undefined || compare(argument, before) > 0 ? argument : before),
  $min: (before, argument) => (before === undefined || compare(argument, before) < 0 ? argument : before),
  $currentDate: () => new Date(Date.now()),
}

/** New fields come in the order of their names, as the server has them. */
function afterOperators(document: Document, operators: Document, options: UpdateOptions): Document {
  let after = document
  const changes = Object.entries(operators).flatMap(([name, fields]) =>
    Object.entries(fields as Document).map(([path, argument]) => ({ name, path, argument })),
  )
  for (const { name, path, argument } of changes.toSorted((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0))) {
    const operator = FIELDS[name]
    if (operator === undefined || path.includes('$')) {
      after = read(bytesOf(after))
      mingoUpdate(after, { [name]: { [path]: argument } }, options.arrayFilters, options.criteria)
      continue
    }
    const names = path.split('.')
    const value = operator(valueAt(after, names), argument, options.inserting === true)
    after = withValue(after, names, value) as Document
  }
  return after
}

/** What an upsert begins with: the fields that the filter wants to be equal to a value. */
export function seedOf(criteria: Document): Document {
  return Object.entries(criteria).reduce<Document>((seed, [path, wanted]) => {
    if (path === '$and') return Object.assign(seed, ...(wanted as Document[]).map(seedOf))
    if (path.startsWith('$') || wanted instanceof RegExp) return seed
    if (!isPlain(wanted) || !Object.keys(wanted).some((name) => name.startsWith('$')))
      return withValue(seed, path.split('.'), wanted) as Document
    return '$eq' in wanted ? (withValue(seed, path.split('.'), wanted.$eq) as Document) : seed
  }, {})
}
