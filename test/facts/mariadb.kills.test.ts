/**
 * What MariaDB makes of a statement of a procedure that is killed. Mostly it says so, and the procedure ends. But some
 * kinds of statements it skips without an error, or answers wrong, and the procedure goes on: after those, ours look
 * whether they were done, or ask in another way.
 */
import type { Connection, RowDataPacket } from 'mysql2/promise'
import { expect, test } from 'vitest'
import { describeMariadb } from './mariadb.ts'

const FIRST = 'from t force index (primary) where a = 1 and n > 1 order by n limit 1'

/** Each makes x 1, unless it is skipped or answers wrong. */
const SKIPPED = {
  'a DELETE': `insert into t values (2, 1, 1); delete from t where a = 2; set x = row_count() = 1;
    while exists (select 1 from t where a = 2) do delete from t where a = 2; end while`,
  'a SELECT INTO with a LIMIT': `select v into x ${FIRST}`,
  'a SELECT INTO of EXISTS': 'select exists (select 1 from t where a = 1 and n > 1) into x',
}
const TOLD = {
  'a SELECT INTO by a unique key': 'select v into x from t where a = 1 and n = 2',
  'a SELECT INTO of a sum over rows': 'select count(v) = 3 into x from t where a = 1 and n > 1',
  'a SELECT INTO of the smallest of one row': `select min(v) into x from (select v ${FIRST}) first`,
  'an INSERT': `delete from t where a = 3; insert into t select 3, n, v from t where a = 1 and n = 2;
    set x = row_count() = 1; while exists (select 1 from t where a = 3) do delete from t where a = 3; end while`,
  'an UPDATE': 'update t set v = v + 1 where a = 1 and n > 1; set x = row_count() = 3',
}
/** So many killed calls that were told so prove that none is skipped. */
const ENOUGH = 60

await describeMariadb('MariaDB, where statements are killed', () => {
  let one: Connection
  let other: Connection

  test.each(Object.entries(SKIPPED))(
    '%s is skipped or answers wrong without an error, now and then',
    async (_, statement) => {
      await calls(statement, ({ skipped }) => skipped > 0)
    },
  )

  test.each(Object.entries(TOLD))('%s is never skipped, and never answers wrong', async (_, statement) => {
    const { skipped } = await calls(statement, ({ told }) => told >= ENOUGH)
    expect(skipped).toBe(0)
  })

  interface Count {
    /** Calls that ended with an error. */
    told: number
    /** Calls that went on though a statement was not done, or had answered wrong. */
    skipped: number
  }

  /** Calls a procedure with that statement, which is killed at any moment, until there is enough. */
  async function calls(statement: string, enough: (count: Count) => boolean): Promise<Count> {
    await one.query('create or replace table t (a int, n int, v int, primary key (a, n)) engine = innodb')
    await one.query('insert into t values (1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1)')
    await one.query(`create or replace procedure repeats() begin
      declare x, i, skipped int default 0;
      start transaction;
      while i < 20 do
        set x = null, i = i + 1;
        ${statement};
        set skipped = skipped + (x is null or x <> 1);
      end while;
      rollback;
      select skipped;
    end`)
    const count = { told: 0, skipped: 0 }
    while (!enough(count)) {
      const answer = one.query<RowDataPacket[][]>('call repeats()').then(
        ([[rows]]) => Number(rows?.[0]?.skipped),
        () => 'told' as const,
      )
      // A turn later, and after so many round trips: at any moment of the call.
      for (let trips = Math.floor(Math.random() * 8); trips > 0; trips -= 1) await other.query('do 0')
      await other.query(`kill query ${one.threadId}`)
      const came = await answer
      if (came === 'told') count.told += 1
      else if (came > 0) count.skipped += 1
      await undone()
    }
    return count
  }

  /** The kill may have come after the call: then it hits this, or nothing. */
  async function undone(): Promise<void> {
    await one.query('rollback').catch(undone)
  }

  return (connections) => {
    one = connections.one
    other = connections.other
  }
})
