/** What our tables and functions are called, and where they are. */

export interface PostgresNames {
  /** The schema they are in. */
  readonly schema: string
  /** What their names begin with. */
  readonly name: string
}

export const DEFAULT_NAMES: PostgresNames = { schema: 'public', name: 'holdfast' }

/** What the names of our functions end with: see migration.ts. */
export const FUNCTIONS_VERSION = 2

/** PostgreSQL cuts names after 63 bytes, silently; the longest of our endings has 15. */
const LONGEST = 48

export function checkNames({ schema, name }: PostgresNames): PostgresNames {
  for (const [option, value] of Object.entries({ schema, name })) {
    if (typeof value === 'string' && /^[A-Za-z_][A-Za-z0-9_]*$/.test(value) && value.length <= LONGEST) continue
    throw new TypeError(
      `${option} must be a name of letters, digits and _, at most ${LONGEST} of them; got ${JSON.stringify(value)}`,
    )
  }
  return { schema, name }
}

/** SQL as in sql/, where everything of ours is `public.holdfast_...`, under the names that were chosen. */
export function renamed(sql: string, { schema, name }: PostgresNames): string {
  if (schema === DEFAULT_NAMES.schema && name === DEFAULT_NAMES.name) return sql
  return sql
    .replaceAll(/\bpublic\.holdfast_(\w+)/g, `"${schema}"."${name}_$1"`)
    .replaceAll(/\b(INDEX IF NOT EXISTS) holdfast_(\w+)/g, `$1 "${name}_$2"`)
}
