/**
 * Truths about MariaDB that we lean on when a listener is woken: what ends a sleep or a wait for a named lock, and what
 * becomes of the connection. As in mariadb.test.ts, when one of these fails after an upgrade, an engine is wrong before
 * its own tests say so.
 */
import type { Connection, RowDataPacket } from 'mysql2/promise'
import { expect, test, vi } from 'vitest'
import type { MariadbServer } from '../servers/mariadb.ts'
import { ask, describeMariadb, LIMIT } from './mariadb.ts'

await describeMariadb('MariaDB, where a connection waits', ({ connect, busy }) => {
  let server: MariadbServer
  let one: Connection
  let other: Connection

  const sleeping = (thread: unknown): Promise<void> => busy(thread, { State: 'User sleep' })

  test('a sleep is ended by KILL QUERY of the same ordinary user; a procedure that sleeps with DO goes on after it', async () => {
    await one.query(`create procedure sleeps() begin do sleep(60); select 'awake' as how; end`)
    const { thread } = await ask(one, 'select connection_id() as thread')
    const slept = one.query<RowDataPacket[][]>('call sleeps()')
    await sleeping(thread)
    await other.query(`kill query ${String(thread)}`)
    const [[rows]] = await slept
    expect(rows).toEqual([{ how: 'awake' }])
    expect(await ask(one, 'select 1 as alive')).toEqual({ alive: 1 })
  })

  test('KILL QUERY of a connection that rests does nothing to what it asks next', async () => {
    const { thread } = await ask(one, 'select connection_id() as thread')
    await other.query(`kill query ${String(thread)}`)
    expect(await ask(one, 'select 1 as alive')).toEqual({ alive: 1 })
  })

  test("an ordinary user may not end another user's query", async () => {
    await server.asRoot(`create user neighbour@'%' identified by 'secret'`)
    const neighbour = await connect(server, `mysql://neighbour:secret@${server.host}:${server.port}`)
    const { thread } = await ask(neighbour, 'select connection_id() as thread')
    await expect(one.query(`kill query ${String(thread)}`)).rejects.toMatchObject({ errno: 1095 })
  })

  test('a named lock tells whose connection it is, also to KILL in a procedure, and goes with that connection', async () => {
    await one.query(`create procedure wakes(in name varchar(64)) begin
      declare thread bigint default is_used_lock(name);
      if thread is not null then kill query thread; end if;
      select thread;
    end`)
    const sleeper = await connect()
    const { had, thread } = await ask(sleeper, `select get_lock('holdfast.fact', 0) as had, connection_id() as thread`)
    expect(had).toBe(1)
    const slept = sleeper.query('do sleep(60)').catch(() => undefined)
    await sleeping(thread)
    const [[rows]] = await one.query<RowDataPacket[][]>(`call wakes('holdfast.fact')`)
    expect(rows?.[0]?.thread).toBe(thread)
    await slept
    sleeper.destroy()
    await vi.waitFor(async () => {
      expect(await ask(one, `select is_used_lock('holdfast.fact') as thread`)).toEqual({ thread: null })
    }, LIMIT)
    expect(await ask(one, `select get_lock('holdfast.fact', -1) as forever`)).toEqual({ forever: null })
  })

  test('a wait for a named lock is ended by KILL QUERY, in a procedure with an error, and the connection keeps the locks it has', async () => {
    await one.query(
      `create procedure queues() begin if get_lock('holdfast.queue', 60) then select 1; end if; select 2; end`,
    )
    const waiter = await connect()
    const { thread } = await ask(waiter, `select get_lock('holdfast.own', 0), connection_id() as thread`)
    await ask(one, `select get_lock('holdfast.queue', 0)`)
    const ended = async (waiting: Promise<unknown>): Promise<unknown> => {
      await busy(thread, { State: 'User lock' })
      await other.query(`kill query ${String(thread)}`)
      return await waiting
    }
    const called = expect(waiter.query('call queues()')).rejects.toMatchObject({ errno: 1317 })
    await ended(called)
    expect(await ended(ask(waiter, `select get_lock('holdfast.queue', 60) as had`))).toEqual({ had: null })
    expect(
      await ask(one, `select is_used_lock('holdfast.own') as thread, release_lock('holdfast.queue') as freed`),
    ).toEqual({
      thread,
      freed: 1,
    })
  })

  test('a connection that waits for a named lock and is killed is gone at once, with its locks, and none waits behind it', async () => {
    const [first, second] = [await connect(), await connect()]
    const { thread } = await ask(first, `select get_lock('holdfast.own', 0), connection_id() as thread`)
    const { next } = await ask(second, 'select connection_id() as next')
    await ask(one, `select get_lock('holdfast.queue', 0)`)
    const lost = expect(first.query(`select get_lock('holdfast.queue', 60)`)).rejects.toThrow()
    await busy(thread, { State: 'User lock' })
    const had = ask(second, `select get_lock('holdfast.queue', 60) as had`)
    await busy(next, { State: 'User lock' })
    await other.query(`kill connection ${String(thread)}`)
    await lost
    await vi.waitFor(async () => {
      expect(await ask(other, `select is_used_lock('holdfast.own') as thread`)).toEqual({ thread: null })
    }, LIMIT)
    await ask(one, `select release_lock('holdfast.queue')`)
    expect(await had).toEqual({ had: 1 })
  })

  test('a connection whose client has died in its sleep is noticed within seconds, not when the sleep is over', async () => {
    const sleeper = await connect()
    const { thread } = await ask(sleeper, 'select connection_id() as thread')
    sleeper.query('do sleep(600)').catch(() => undefined)
    await sleeping(thread)
    sleeper.destroy()
    await vi.waitFor(async () => {
      const threads = (await server.asRoot('show processlist')) as { Id: number }[]
      expect(threads.map(({ Id }) => Id)).not.toContain(thread)
    }, LIMIT)
  })

  return (connections) => {
    ;({ server, one, other } = connections)
  }
})
