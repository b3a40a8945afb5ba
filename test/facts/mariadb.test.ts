/**
 * Truths about MariaDB that we lean on, asked of the real server. When one of these fails after an upgrade, an engine
 * is wrong before its own tests say so.
 */
import type { Connection, RowDataPacket } from 'mysql2/promise'
import { expect, test, vi } from 'vitest'
import { MariadbServer } from '../servers/mariadb.ts'
import { ask, describeMariadb, LIMIT } from './mariadb.ts'

await describeMariadb('MariaDB', ({ source, connect, busy }) => {
  let server: MariadbServer
  let one: Connection
  let other: Connection

  test('it does not run as root, and its ordinary user may not look beyond its database', async () => {
    expect(server.process?.log).not.toContain('running as root')
    await expect(one.query('select * from mysql.user')).rejects.toMatchObject({ errno: 1142 })
  })

  test('the default collation takes different keys for one, and VARBINARY does not', async () => {
    const same = `'a' = 'A' as cases, 'a' = 'a ' as spaces, 'a' = 'á' as accents`
    expect(
      await ask(one, `select ${same.replaceAll(/('\S+?')(?= as)/g, '$1 collate utf8mb4_general_ci')}`),
    ).toMatchObject({
      cases: 1,
      spaces: 1,
      accents: 1,
    })
    await one.query('create table keys_binary (k varbinary(512) primary key)')
    await one.query(`insert into keys_binary values ('a'), ('A'), ('a '), ('á'), ('a/b'), ('a}b'), ('{}x')`)
    expect(await ask(one, 'select count(*) as n from keys_binary')).toEqual({ n: 7 })
  })

  test('inside a statement NOW stands still; in a procedure each statement has a time of its own, in UTC too', async () => {
    const { stale } = await ask(
      one,
      'select sleep(0.05) as slept, timestampdiff(microsecond, now(6), sysdate(6)) as stale',
    )
    expect(Number(stale)).toBeGreaterThanOrEqual(50_000)
    await one.query(`create procedure flows() begin
      declare before_it, after_it datetime(6);
      set before_it = utc_timestamp(6);
      do sleep(0.05);
      set after_it = utc_timestamp(6);
      select timestampdiff(microsecond, before_it, after_it) as passed;
    end`)
    const [[rows]] = await one.query<RowDataPacket[][]>('call flows()')
    expect(Number(rows?.[0]?.passed)).toBeGreaterThanOrEqual(50_000)
  })

  test('when summer time ends, two moments an hour apart are one UNIX_TIMESTAMP(SYSDATE(6)): local time is no clock', async () => {
    const program = { ...source.program, env: { ...source.program.env, TZ: 'CET-1CEST,M3.5.0,M10.5.0/3' } }
    await using local = await MariadbServer.start({ program })
    const connection = await connect(local)
    const summer = Date.UTC(2026, 9, 25, 0, 30) / 1000
    const read = (at: number): string => `unix_timestamp(cast(from_unixtime(${at}) as char))`
    const { first, second } = await ask(connection, `select ${read(summer)} as first, ${read(summer + 3600)} as second`)
    expect(Number(second)).toBe(Number(first))
  })

  test('a statement that waits for a row reads the time after it has the row, if that is another statement of the procedure', async () => {
    await one.query('create table row_of (n int primary key, v int) engine = innodb')
    await one.query('insert into row_of values (1, 0)')
    await other.query(`create procedure waits() begin
      declare sent, had datetime(6);
      set sent = utc_timestamp(6);
      start transaction;
      select v into @v from row_of where n = 1 for update;
      set had = utc_timestamp(6);
      commit;
      select timestampdiff(microsecond, sent, had) as waited;
    end`)
    await one.query('start transaction')
    await one.query('update row_of set v = 1 where n = 1')
    const asked = other.query<RowDataPacket[][]>('call waits()')
    await one.query('do sleep(0.1)')
    await one.query('commit')
    const [[rows]] = await asked
    expect(Number(rows?.[0]?.waited)).toBeGreaterThanOrEqual(90_000)
  })

  test('a procedure that is killed between two statements leaves its transaction open, whatever its handlers: such a connection is not given back', async () => {
    await one.query('create table open_after (n int primary key, v int) engine = innodb')
    await one.query('insert into open_after values (1, 0)')
    await one.query(`create procedure dies() begin
      declare i bigint default 0;
      declare exit handler for sqlexception begin rollback; resignal; end;
      start transaction;
      update open_after set v = 1 where n = 1;
      while i < 1000000000 do set i = i + 1; end while;
      commit;
    end`)
    const victim = await connect()
    const { thread } = await ask(victim, 'select connection_id() as thread')
    const called = expect(victim.query('call dies()')).rejects.toMatchObject({ errno: 1317 })
    await busy(thread, { Command: 'Query', Info: 'call dies()' })
    await other.query(`kill query ${String(thread)}`)
    await called
    expect(await ask(victim, 'select @@in_transaction as open')).toEqual({ open: 1 })
    await other.query('set innodb_lock_wait_timeout = 1')
    await expect(other.query('update open_after set v = 2 where n = 1')).rejects.toMatchObject({ errno: 1205 })
    victim.destroy()
    await other.query('set innodb_lock_wait_timeout = 50')
    await other.query('update open_after set v = 2 where n = 1')
  })

  test('after a lock wait that took too long, only the statement is undone: a handler has to undo the rest', async () => {
    await one.query('create table half (n int primary key, v int) engine = innodb')
    await one.query('insert into half values (1, 0), (2, 0)')
    await other.query(`create procedure halves(in whole boolean) begin
      declare exit handler for sqlexception begin if whole then rollback; end if; resignal; end;
      set innodb_lock_wait_timeout = 1;
      start transaction;
      update half set v = v + 1 where n = 1;
      update half set v = v + 1 where n = 2;
      commit;
    end`)
    await one.query('start transaction')
    await one.query('select * from half where n = 2 for update')
    for (const [whole, open] of [
      ['false', 1],
      ['true', 0],
    ]) {
      await expect(other.query(`call halves(${whole})`)).rejects.toMatchObject({ errno: 1205 })
      expect(await ask(other, 'select @@in_transaction as open')).toEqual({ open })
      await other.query('rollback')
    }
    await one.query('rollback')
  })

  test('what a procedure asks inside of IF and SET waits for rows that are locked; SELECT INTO does not, and SKIP LOCKED leaves them out', async () => {
    await one.query('create table asked_of (n int primary key) engine = innodb')
    await one.query('insert into asked_of values (1)')
    const ways = {
      asks_if: 'if exists (select 1 from asked_of where n = 1) then set found = true; end if',
      asks_set: 'set found = exists (select 1 from asked_of where n = 1)',
      asks_into: 'select true into found from asked_of where n = 1',
      asks_skip: 'select true into found from asked_of where n = 1 for update skip locked',
    }
    for (const [name, way] of Object.entries(ways)) {
      await other.query(
        `create procedure ${name}() begin declare found boolean default false; ${way}; select found; end`,
      )
    }
    await one.query('start transaction')
    await one.query('select * from asked_of where n = 1 for update')
    await other.query('set innodb_lock_wait_timeout = 1')
    await other.query('set session transaction isolation level read committed')
    for (const name of ['asks_if', 'asks_set'])
      await expect(other.query(`call ${name}()`)).rejects.toMatchObject({ errno: 1205 })
    for (const [name, found] of [
      ['asks_into', 1],
      ['asks_skip', 0],
    ]) {
      const [[rows]] = await other.query<RowDataPacket[][]>(`call ${name}()`)
      expect(rows).toEqual([{ found }])
    }
    await one.query('rollback')
  })

  test('what an INSERT reads with a lock is what is there when it has the lock', async () => {
    await one.query('create table bottom (v bigint not null) engine = innodb')
    await one.query('insert into bottom values (1)')
    await one.query('create table above (v bigint not null) engine = innodb')
    await one.query('start transaction')
    await one.query('update bottom set v = 2')
    const inserted = other.query('insert into above values (greatest(0, (select v from bottom lock in share mode)))')
    await vi.waitFor(
      async () => expect(await server.asRoot('select * from information_schema.innodb_lock_waits')).toHaveLength(1),
      LIMIT,
    )
    await one.query('commit')
    await inserted
    expect(await ask(one, 'select v from above')).toEqual({ v: 2 })
  })

  test('many at once raise one row, or make it, and none of them is in a deadlock', async () => {
    await one.query('create table counters (n int primary key, v bigint not null) engine = innodb')
    const connections = await Promise.all(Array.from({ length: 20 }, () => connect()))
    const raise = 'insert into counters values (1, 1), (2, 1), (3, 1) on duplicate key update v = v + 1'
    await Promise.all(
      connections.map(async (connection) => {
        for (let turn = 0; turn < 10; turn += 1) await connection.query(raise)
      }),
    )
    expect(await ask(one, 'select min(v) as least, max(v) as most from counters')).toEqual({ least: 200, most: 200 })
  })

  test('a statement whose last row asks for one value of two is undone as a whole; where they are not looked at, nothing is wrong', async () => {
    const two = '(select 1 union select 2)'
    await one.query('create table whole (n int primary key, v bigint not null) engine = innodb')
    await one.query('insert into whole values (1, 1), (2, 1), (3, 2)')
    const raise = (v: number) => one.query(`update whole set v = if(v = ${v}, 5, ${two}) where n in (1, 2, 3)`)
    await expect(raise(1)).rejects.toMatchObject({ errno: 1242 })
    const make = (n: number) =>
      one.query(`insert into whole select n + ${n}, 7 from whole on duplicate key update v = ${two}`)
    await expect(make(-2)).rejects.toMatchObject({ errno: 1242 })
    expect(await ask(one, 'select group_concat(v order by n) as list from whole')).toEqual({ list: '1,1,2' })
    await one.query('update whole set v = 1')
    await raise(1)
    await make(3)
    expect(await ask(one, 'select group_concat(v order by n) as list from whole')).toEqual({ list: '5,5,5,7,7,7' })
  })

  test('LAST_INSERT_ID(n) is told with the reply, also where nothing changes; where a row is made, it is 0', async () => {
    await one.query('create table told (n int primary key, v bigint not null) engine = innodb')
    const raise = 'insert into told values (1, 7) on duplicate key update v = v + 0 * last_insert_id(v)'
    const replies = [await one.execute(raise), await one.execute(raise)] as [{ insertId: number }, unknown][]
    expect(replies.map(([{ insertId }]) => insertId)).toEqual([0, 7])
  })

  test('LAST_INSERT_ID() is, for each row of a statement, what LAST_INSERT_ID(n) was for the row before, in the order of the primary key', async () => {
    await one.query('create table in_turn (n int primary key, v bigint not null) engine = innodb')
    await one.query('insert into in_turn values (9, 0), (3, 0), (5, 0), (1, 0)')
    await one.query(
      'update in_turn force index (primary) set v = last_insert_id(if(n = 3, 70, last_insert_id()) + 1) where n in (5, 3, 7, 9)',
    )
    expect(await ask(one, 'select group_concat(v order by n) as list from in_turn')).toEqual({ list: '0,71,72,73' })
  })

  test('JSON_TABLE gives its rows in the order of the document, to a cursor too', async () => {
    await one.query(`create procedure in_order(in batch longtext) begin
      declare n, i int default 0;
      declare seen text default '';
      declare rows_of cursor for select item.n from json_table(batch, '$[*]' columns (n int path '$[0]')) as item;
      open rows_of;
      while i < json_length(batch) do
        fetch rows_of into n;
        set seen = concat_ws(',', nullif(seen, ''), n), i = i + 1;
      end while;
      close rows_of;
      select seen;
    end`)
    const numbers = Array.from({ length: 500 }, (_, index) => (index * 7919) % 1009)
    const [[rows]] = await one.query<RowDataPacket[][]>(`call in_order('${JSON.stringify(numbers.map((n) => [n]))}')`)
    expect(rows?.[0]?.seen).toBe(numbers.join(','))
  })

  test('killed and started again in the same folder, it has what was committed and nothing else', async () => {
    await using mortal = await MariadbServer.start(source)
    const before = await connect(mortal)
    await before.query('create table kept (n int primary key) engine = innodb')
    await before.query('insert into kept values (1)')
    await before.query('start transaction')
    await before.query('insert into kept values (2)')
    await mortal.process?.kill()
    await expect(before.query('select 1')).rejects.toThrow()
    await mortal.process?.start()
    const after = await connect(mortal)
    const [rows] = await after.query('select n from kept')
    expect(rows).toEqual([{ n: 1 }])
  })

  test('stopped in its tracks it answers nothing, and goes on when it is resumed', async () => {
    await using slow = await MariadbServer.start(source)
    const connection = await connect(slow)
    slow.process?.pause()
    let answered = false
    const asked = ask(connection, 'select 1 as n').then((row) => {
      answered = true
      return row
    })
    // Long for a server that runs.
    await ask(one, 'select sleep(0.3)')
    expect(answered).toBe(false)
    slow.process?.resume()
    expect(await asked).toEqual({ n: 1 })
  })

  return (connections) => {
    ;({ server, one, other } = connections)
  }
})
