/**
 * What is asked of the server, and what is stored there.
 *
 * The locks themselves are session-level advisory locks: they are in no table, and end with their session. Beside them,
 * in a table, is what people want to see: which key, which holder, since when. Nothing is decided by it, so it is
 * unlogged: a crash of the server empties it and frees every lock. A row counts while its session lives, which shows in
 * `pg_locks`: each session holds one more lock, on a random number of its own, which is its name here.
 *
 * A key has two numbers: the lock's, and a *flag*, held in shared mode by sessions that wait for the key. A
 * holder that releases tries the flag, and sends a notification only if another session has it. A waiter takes the flag
 * and then tries once more; a holder unlocks and then looks at the flag: no order of these four misses a lock that is
 * free. While a holder looks, the flag is its own, and a waiter that cannot take it tries once more without: where
 * another session has the lock by then, that waiter is told of no release before its next poll, which takes the flag.
 *
 * SQL promises an order of evaluation only inside of CASE, so what has to come first is in one.
 */

/**
 * The format of the table; a change of it is another table. All of them are in one schema, whatever search_path a role
 * or a connection has: locks belong to the whole database, and so do their tokens.
 */
export const ENTRIES = 'public.holdfast_advisory1_entries'
export const TOKENS = 'public.holdfast_advisory1_tokens'
const UNBROKEN = 'public.holdfast_advisory1_unbroken'
export const CHANNEL = 'holdfast_advisory1'
/** What is said there: a key follows the first. */
export const FREED = 'freed:'
export const EVICTION = 'evicted'

/**
 * Under a lock of its own: `IF NOT EXISTS` fails when several processes begin at once.
 */
export const CREATE_TABLES: string = `
BEGIN;
SELECT pg_advisory_xact_lock(('x' || left(encode(sha256('${ENTRIES}'), 'hex'), 16))::bit(64)::bigint);
CREATE SEQUENCE IF NOT EXISTS ${TOKENS} CACHE 1;
CREATE UNLOGGED TABLE IF NOT EXISTS ${ENTRIES} (
  session bigint NOT NULL, id text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, holder text NOT NULL,
  shared boolean NOT NULL, ttl_ms bigint NOT NULL, token bigint, entered timestamptz NOT NULL, held timestamptz,
  evicted boolean NOT NULL DEFAULT false,
  PRIMARY KEY (session, id)
);
CREATE INDEX IF NOT EXISTS holdfast_advisory1_entries_key ON ${ENTRIES} (key);
CREATE UNLOGGED TABLE IF NOT EXISTS ${UNBROKEN} (one boolean PRIMARY KEY CHECK (one));
COMMIT`

export const TABLES_EXIST: string = `
SELECT to_regclass('${ENTRIES}') IS NOT NULL AND to_regclass('${TOKENS}') IS NOT NULL
  AND to_regclass('${UNBROKEN}') IS NOT NULL AS made`

/**
 * Before the first token after a crash or a fail-over. A sequence may then be a little behind what it gave out: its
 * last writes had not reached the disk, or the replica. The same crash empties unlogged tables, which tells; and all
 * sessions have ended with it, so no token is taken meanwhile. A session that begins at the same time waits for the
 * row, and then finds it.
 *
 * This change itself is waited for until it is on the disk: a second crash that loses it would advance to the same
 * number again. A replica is not waited for: one that is away would keep all sessions from beginning, and one that has
 * not got the change is past it all the same, by its clock.
 */
export const ADVANCE_TOKENS: string = `
BEGIN;
SET LOCAL synchronous_commit = local;
WITH broken AS (INSERT INTO ${UNBROKEN} VALUES (true) ON CONFLICT DO NOTHING RETURNING one)
SELECT setval('${TOKENS}', greatest(nextval('${TOKENS}') + 1000000,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) FROM broken;
COMMIT`

/** Settings by name and value; what this server does not know is left out. */
export const SET_SETTINGS = 'SELECT set_config(name, $2::json ->> name, false) FROM pg_settings WHERE name = ANY($1)'

/** $1 is the number of our session. The rows of sessions that are no more go with it. */
export const BEGIN_SESSION: string = `
WITH mine AS MATERIALIZED (SELECT pg_try_advisory_lock($1::bigint) AS mine),
     dead AS (DELETE FROM ${ENTRIES} e WHERE NOT EXISTS (${living('e')}) AND e.session <> $1::bigint)
SELECT mine, pg_backend_pid() AS pid FROM mine`

const TRY = 'CASE WHEN k.shared THEN pg_try_advisory_lock_shared(k.number) ELSE pg_try_advisory_lock(k.number) END'

/**
 * $1 is the number of our session, $2 the keys (`KeyAttempt` in codec.ts): each with the entries that may hold it
 * together, and those to be shown as waiting behind them. Answers, entry by entry: `outcome` (`won`, `lost`; with
 * `Flagged` if the flag was taken on the way) and a token for each that holds.
 */
export const ATTEMPT: string = `
WITH tried AS MATERIALIZED (
  SELECT k.key, k.entries, CASE
    WHEN NOT k.asks THEN 'lost'
    WHEN k.have THEN 'won'
    WHEN ${TRY} THEN 'won'
    WHEN NOT k.waits OR k.flagged THEN 'lost'
    WHEN pg_try_advisory_lock_shared(k.flag) THEN CASE WHEN ${TRY} THEN 'wonFlagged' ELSE 'lostFlagged' END
    WHEN ${TRY} THEN 'won'
    ELSE 'lost' END AS outcome
  FROM jsonb_to_recordset($2::jsonb) AS k(
    key text, number bigint, flag bigint, shared boolean, asks boolean, have boolean, waits boolean, flagged boolean,
    entries jsonb)
), answered AS MATERIALIZED (
  SELECT t.key, t.outcome, e.*, CASE WHEN e.asks AND t.outcome LIKE 'won%' THEN nextval('${TOKENS}') END AS token
  FROM tried t, jsonb_to_recordset(t.entries) AS e(
    id text, holder text, "ttlMs" bigint, "ageMs" float8, shared boolean, asks boolean, wait boolean, fresh boolean)
), shown AS (
  INSERT INTO ${ENTRIES} AS known
  SELECT $1::bigint, id, key, holder, shared, "ttlMs", token, clock_timestamp() - "ageMs" * interval '1 ms',
    CASE WHEN token IS NOT NULL THEN clock_timestamp() END
  FROM answered WHERE token IS NOT NULL OR (wait AND fresh)
  ON CONFLICT (session, id) DO UPDATE SET token = excluded.token, held = excluded.held
)
SELECT key, id, outcome, token FROM answered`

/**
 * $1 is the number of our session, $2 the ids that go, $3 their keys (`KeyRelease` in codec.ts), with what no entry of
 * this process needs any more. Answers for each key whether waiters of other processes were told.
 */
export const RELEASE: string = `
WITH gone AS (DELETE FROM ${ENTRIES} WHERE session = $1::bigint AND id = ANY($2)),
freed AS MATERIALIZED (
  SELECT k.key, k.number, k.flag,
    CASE WHEN NOT k.unlock THEN false WHEN k.shared THEN pg_advisory_unlock_shared(k.number)
      ELSE pg_advisory_unlock(k.number) END AS unlocked,
    CASE WHEN k.unflag THEN pg_advisory_unlock_shared(k.flag) END AS unflagged
  FROM jsonb_to_recordset($3::jsonb) AS k(
    key text, number bigint, flag bigint, shared boolean, unlock boolean, unflag boolean)
), told AS MATERIALIZED (
  SELECT key, CASE WHEN NOT unlocked THEN false WHEN pg_try_advisory_xact_lock(flag) THEN false
    ELSE pg_notify('${CHANNEL}', '${FREED}' || key) IS NOT NULL END AS told FROM freed
)
SELECT key, told FROM told`

/** Which of ours were evicted; that there is an answer shows that the session lives. */
export const OWN_EVICTED: string = `SELECT id FROM ${ENTRIES} WHERE session = $1::bigint AND evicted`

/** Only its own session can unlock a session lock: it is told to. */
export const EVICT: string = `
WITH marked AS (
  UPDATE ${ENTRIES} e SET evicted = true
    WHERE e.key = $1 AND e.token = $2::bigint AND EXISTS (${living('e')}) RETURNING e.key)
SELECT pg_notify('${CHANNEL}', '${EVICTION}') FROM marked`

export const INSPECT: string = `
SELECT e.id, e.holder, e.shared, e.ttl_ms, e.token, extract(epoch FROM clock_timestamp() - e.entered) * 1000 AS age,
  extract(epoch FROM clock_timestamp() - e.held) * 1000 AS held
FROM ${ENTRIES} e WHERE e.key = $1 AND EXISTS (${living('e')}) ORDER BY e.token NULLS LAST, e.entered`

export const LIST: string = `
SELECT e.key, count(e.token)::int AS held, (count(*) - count(e.token))::int AS waiting
FROM ${ENTRIES} e WHERE starts_with(e.key, $1) AND EXISTS (${living('e')}) GROUP BY e.key`

/** There is one if the session of a row lives. */
export function living(row: string): string {
  return `SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = ((${row}.session >> 32) & 4294967295)::oid AND l.objid = (${row}.session & 4294967295)::oid`
}
