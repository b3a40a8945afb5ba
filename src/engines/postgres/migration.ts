/**
 * The tables and functions, as one text: made on first use, or printed by `holdfast migrate --print` for a database in
 * which the application may not create anything.
 *
 * Fifty processes may come to an empty database at once. `CREATE ... IF NOT EXISTS` alone does not survive that, so
 * they take turns, and only the first one finds something to do. What is there is not touched. Functions have a hash of
 * their text in their names: a version with other functions makes its own, and older and newer processes work side by
 * side.
 */

import { advisoryKey } from '../../clients/postgres/advisory-key.ts'
import { splitUrl } from '../../clients/postgres/connect.ts'
import { checkNames, DEFAULT_NAMES, type PostgresNames, renamed, TABLE_NAMES } from './names.ts'
import { sources } from './sources.ts'

/** For people and for psql. It can be run again. */
export function migration(names: PostgresNames): string {
  const { schema, name } = names
  const tables = TABLE_NAMES.map((table) => `"${schema}"."${name}_${table}"`).join(', ')
  return `-- Tables and functions of Holdfast, in the schema "${schema}". Run it as a user who may create them. The
-- user of your application then needs:
--
--     GRANT USAGE ON SCHEMA "${schema}" TO your_user;
--     GRANT SELECT, INSERT, UPDATE, DELETE ON ${tables} TO your_user;
BEGIN;
${schemaOf(names)}
${renamed(sources.join('\n'), names)}
COMMIT;
`
}

/** The text for the tables that a URL means. */
export function migrationFor(url: string): string {
  const { schema, name } = { ...DEFAULT_NAMES, ...splitUrl(url).options }
  return migration(checkNames({ schema, name }))
}

/**
 * The same for us: one statement after the other in one message, which is one transaction; all of it or nothing, and
 * nothing if it is there.
 */
export function firstUse(names: PostgresNames): string {
  const there = renamed(
    `to_regclass('public.holdfast_meta') IS NOT NULL AND to_regclass('public.holdfast_line') IS NOT NULL
      AND to_regclass('public.holdfast_entry') IS NOT NULL AND to_regclass('public.holdfast_record') IS NOT NULL
      AND to_regproc('public.holdfast_enter') IS NOT NULL
      AND to_regproc('public.holdfast_put') IS NOT NULL
      AND to_regproc('public.holdfast_take') IS NOT NULL
      AND to_regproc('public.holdfast_begin') IS NOT NULL
      AND to_regclass('public.holdfast_pool_hold') IS NOT NULL
      AND to_regproc('public.holdfast_hold') IS NOT NULL`,
    names,
  )
  return `
SELECT pg_advisory_xact_lock(${advisoryKey(`the tables ${names.schema}.${names.name}`)});
DO $holdfast$
BEGIN
  IF ${there} THEN
    RETURN;
  END IF;
  ${schemaOf(names)}
  EXECUTE $migration$
${renamed(sources.join('\n'), names)}
  $migration$;
END $holdfast$;`
}

/** CREATE SCHEMA asks for a permission that most users have not, also where there is nothing to create. */
function schemaOf({ schema }: PostgresNames): string {
  return `DO $$ BEGIN IF to_regnamespace('"${schema}"') IS NULL THEN CREATE SCHEMA "${schema}"; END IF; END $$;`
}
