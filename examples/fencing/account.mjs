/**
 * An account in a SQLite file, which is what the lock protects. The driver is whichever SQLite this Node has: its own,
 * or the prebuilt one that Holdfast uses.
 */
import { guard } from 'holdfast/guards/sqlite'

async function driver() {
  const own = process.getBuiltinModule('node:sqlite')
  const { DatabaseSync } = own ?? (await import('@photostructure/sqlite'))
  return DatabaseSync
}

export async function openAccount(file) {
  const Database = await driver()
  const database = new Database(file)
  database.exec('pragma journal_mode = wal; pragma busy_timeout = 5000')
  database.exec('create table if not exists account (id integer primary key, balance integer not null)')
  guard().setup(database)
  return {
    database,
    balance: () => database.prepare('select balance from account where id = 7').all()[0].balance,
    setBalance: (balance) => database.prepare('insert or replace into account values (7, ?)').run(balance),
    inside(work) {
      database.exec('begin immediate')
      try {
        const result = work()
        database.exec('commit')
        return result
      } catch (error) {
        database.exec('rollback')
        throw error
      }
    },
  }
}
