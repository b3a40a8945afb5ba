/**
 * Records beside advisory locks: what is asked of the server, and what is stored there. The table is logged, unlike
 * that of entries: records outlive sessions and crashes. Versions are tokens, from the same sequence.
 *
 * Whether an entry holds is not checked: no transaction can see that another session's lock is about to end with it.
 */
import { ENTRIES, living, TOKENS } from './sql.ts'

const RECORDS = 'public.holdfast_advisory1_records'
const PUT_FUNCTION = 'public.holdfast_advisory1_put'

export const RECORDS_EXIST: string = `
SELECT to_regclass('${RECORDS}') IS NOT NULL AND to_regproc('${PUT_FUNCTION}') IS NOT NULL AS made`

/** A record that is in an answer: what it is, value, version, mark, for how long it lives (ms). */
const FOUND = (
  what: string,
): string => `json_build_array(${what}, encode(r.value, 'hex'), r.version::text, r.mark::text,
  CASE WHEN r.value IS NOT NULL THEN extract(epoch FROM r.expires_at - now) * 1000 END)`

/**
 * The function makes changes in the order of the arrays; what is null is not asked for, a null value is a removal. The
 * records are locked first, in the order of their keys. A row of version 0 was made only to be locked.
 */
export const CREATE_RECORDS: string = `
BEGIN;
SELECT pg_advisory_xact_lock(('x' || left(encode(sha256('${RECORDS}'), 'hex'), 16))::bit(64)::bigint);
CREATE TABLE IF NOT EXISTS ${RECORDS} (
  key text COLLATE "C" PRIMARY KEY, value bytea, version bigint NOT NULL, mark bigint NOT NULL, expires_at timestamptz
);
CREATE INDEX IF NOT EXISTS holdfast_advisory1_records_expiry ON ${RECORDS} (expires_at) WHERE expires_at IS NOT NULL;
CREATE OR REPLACE FUNCTION ${PUT_FUNCTION}(
  keys text[], vals text[], ttls bigint[], marks bigint[], absents boolean[], versions bigint[], marks_below bigint[]
) RETURNS json LANGUAGE plpgsql AS $put$
DECLARE
  own_key text;
  now timestamptz;
  r ${RECORDS};
  refused_by text;
  answers json[];
BEGIN
  FOR own_key IN SELECT DISTINCT a.key COLLATE "C" FROM unnest(keys) AS a(key) ORDER BY 1 LOOP
    LOOP
      PERFORM 1 FROM ${RECORDS} k WHERE k.key = own_key FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO ${RECORDS} (key, version, mark) VALUES (own_key, 0, 0) ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
    END LOOP;
  END LOOP;
  now := clock_timestamp();
  FOR i IN 1 .. cardinality(keys) LOOP
    SELECT * INTO STRICT r FROM ${RECORDS} k WHERE k.key = keys[i];
    IF r.expires_at <= now THEN
      r.value := NULL;
      r.version := 0;
      r.mark := 0;
    END IF;
    refused_by := CASE
      WHEN absents[i] AND r.value IS NOT NULL THEN 'absent'
      WHEN versions[i] <> r.version THEN 'version'
      WHEN marks_below[i] <= r.mark THEN 'markBelow' END;
    IF refused_by IS NOT NULL THEN
      answers[i] := ${FOUND('refused_by')};
      CONTINUE;
    END IF;
    r.value := decode(vals[i], 'hex');
    r.version := nextval('${TOKENS}');
    r.mark := CASE WHEN vals[i] IS NULL THEN 0 ELSE greatest(r.mark, marks[i]) END;
    r.expires_at := now + ttls[i] * interval '1 ms';
    IF vals[i] IS NULL THEN
      -- A process that has found what is removed now is refused for a day (TOMBSTONE_MS), if it stands in the line.
      r.expires_at := now + CASE
        WHEN EXISTS (SELECT FROM ${ENTRIES} e WHERE e.key = keys[i] AND EXISTS (${living('e')})) THEN interval '1 day'
        ELSE interval '0' END;
    END IF;
    UPDATE ${RECORDS} k SET value = r.value, version = r.version, mark = r.mark, expires_at = r.expires_at
      WHERE k.key = keys[i];
    answers[i] := ${FOUND("'stored'")};
  END LOOP;
  DELETE FROM ${RECORDS} k WHERE k.key = ANY (keys) AND k.version = 0;
  RETURN json_build_array(extract(epoch FROM now) * 1000, to_json(answers));
END $put$;
COMMIT`

/** $1 to $7 are the arguments of the function, as texts. */
export const PUT: string = `SELECT ${PUT_FUNCTION}($1::text[], $2::text[], $3::text::bigint[], $4::text::bigint[],
  $5::text::boolean[], $6::text::bigint[], $7::text::bigint[])::text AS answer`

/** $1 is the keys. Answers the time, and for each key null or the record. */
export const GET: string = `
SELECT json_build_array(extract(epoch FROM now) * 1000, (
  SELECT json_agg((
      SELECT ${FOUND("'read'")} FROM ${RECORDS} r WHERE r.key = a.key AND (r.expires_at IS NULL OR r.expires_at > now))
    ORDER BY a.i)
  FROM unnest($1::text[]) WITH ORDINALITY AS a(key, i)))::text AS answer
FROM (SELECT clock_timestamp() AS now OFFSET 0) t`

/** $1 is the prefix, $2 a key to go on after, or null; $3 how many. */
export const LIST_RECORDS: string = `
SELECT r.key, octet_length(r.value) AS bytes, r.version::text, r.mark::text,
  extract(epoch FROM r.expires_at - clock_timestamp())::float8 * 1000 AS lives
FROM ${RECORDS} r
WHERE r.key >= $1 AND starts_with(r.key, $1) AND ($2::text IS NULL OR r.key > $2) AND r.value IS NOT NULL
  AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())
ORDER BY r.key LIMIT $3::int`

/** $1 is how many rows to remove at most. */
export const FORGET: string = `
WITH gone AS (
  DELETE FROM ${RECORDS} WHERE key IN (
    SELECT key FROM ${RECORDS} WHERE expires_at <= clock_timestamp() LIMIT $1::int FOR UPDATE SKIP LOCKED)
  RETURNING key)
SELECT count(*)::int AS removed FROM gone`
