/**
 * What our tables and functions are called, and where they are.
 *
 * Functions that differ have different names, which end in a hash of their text: processes with older and newer
 * versions of Holdfast work side by side on one database, each with its own. Those of records, of rate limits and of
 * pools have versions of their own: a change of them does not lock out a user of locks who may not create functions.
 */
import { createHash } from 'node:crypto'
import { sources } from './sources.ts'

export interface PostgresNames {
  /** The schema they are in. */
  readonly schema: string
  /** What their names begin with. */
  readonly name: string
}

export const DEFAULT_NAMES: PostgresNames = { schema: 'public', name: 'holdfast' }

export const TABLE_NAMES: readonly string[] = ['meta', 'line', 'entry', 'record', 'pool', 'pool_item', 'pool_hold']

/** PostgreSQL cuts names after 63 bytes, silently; the longest of our endings has 22. */
const LONGEST = 41
const HASH_DIGITS = 8

export function checkNames({ schema, name }: PostgresNames): PostgresNames {
  for (const [option, value] of Object.entries({ schema, name })) {
    if (typeof value === 'string' && /^[A-Za-z_][A-Za-z0-9_]*$/.test(value) && value.length <= LONGEST) continue
    throw new TypeError(
      `${option} must be a name of letters, digits and _, at most ${LONGEST} of them; got ${JSON.stringify(value)}`,
    )
  }
  return { schema, name }
}

/** The files of sql/, in their order: first the tables, then the functions of lines, and what builds on those. */
const [, ...lines] = sources
const pools = lines.splice(-2)
const draws = lines.splice(-1)
const records = lines.splice(-2)

/** What the names of functions end with, by function: see migration.ts. */
const VERSIONS: ReadonlyMap<string, string> = new Map(
  [[], records, draws, pools].flatMap((others) => {
    // They call functions of lines, by names that are in their text: with other lines, they are others, too.
    const version = versionOf([...lines, ...others])
    const functions = functionsIn((others.length === 0 ? lines : others).join('\n'))
    return functions.map((name) => [name, version] as const)
  }),
)

/** Another text has another version. How it is wrapped, and its comments, do not count. */
export function versionOf(functions: readonly string[]): string {
  const text = functions
    .join('\n')
    .replaceAll(/(?:^|\s)--(?: .*)?$/gm, '')
    .replaceAll(/\s+/g, ' ')
  return createHash('sha1').update(text).digest('hex').slice(0, HASH_DIGITS)
}

function functionsIn(text: string): readonly string[] {
  return [...text.matchAll(/^CREATE OR REPLACE FUNCTION public\.holdfast_(\w+)/gm)].map(([, name = '']) => name)
}

/**
 * SQL as in sql/, where everything of ours is `public.holdfast_...`, under the names that were chosen; functions with
 * their version.
 */
export function renamed(sql: string, { schema, name }: PostgresNames): string {
  const isUsual = schema === DEFAULT_NAMES.schema && name === DEFAULT_NAMES.name
  const quoted = (text: string): string => (isUsual ? text : `"${text}"`)
  return sql
    .replaceAll(/\bpublic\.holdfast_(\w+)/g, (_, what: string) => {
      const version = VERSIONS.get(what)
      return `${quoted(schema)}.${quoted(version === undefined ? `${name}_${what}` : `${name}_${what}_${version}`)}`
    })
    .replaceAll(/\b(INDEX IF NOT EXISTS) holdfast_(\w+)/g, (_, head: string, what: string) => {
      return `${head} ${quoted(`${name}_${what}`)}`
    })
}
