/**
 * Every statement that is run more than once, prepared when it is first used, and what it costs.
 *
 * `indexed by` is there where a walk of the line must never happen: SQLite then refuses the statement rather than
 * choosing another way. Statements that write and answer are stepped to their end (`all`); see
 * clients/sqlite/driver.ts.
 */
import {
  type BroughtDatabase,
  command,
  query,
  type SqliteCommand,
  type SqliteQuery,
  schemaOf,
} from '../../../clients/sqlite/driver.ts'

/** What the totals of a line need to know of an entry that has gone. */
export interface GoneRow {
  readonly key: string
  readonly state: number
  readonly weight: number
  readonly limit: number
}

/** An entry that is about to be told something. */
export interface EntryRow extends GoneRow {
  readonly id: string
  readonly token: number
  readonly expires_at: number
  readonly client: number
}

export interface WholeEntryRow extends EntryRow {
  readonly holder: string
  readonly ttl_ms: number
  readonly entered_at: number
  readonly held_at: number | null
  readonly evicted: number
}

export interface LineRow {
  readonly held: number
  readonly weight: number
  readonly limit: number
  readonly at_limit: number
  readonly waiting: number
}

export interface ClientRow {
  readonly client: number
  readonly realm: string | null
  readonly pid: number | null
  readonly born: string | null
  readonly groups: string
  readonly since: number
}

const GONE = 'key, state, weight, "limit"'
const ENTRY = `${GONE}, id, token, expires_at, client`

export interface SqliteStatements {
  readonly begin: SqliteCommand<[]>
  readonly commit: SqliteCommand<[]>
  readonly savepoint: SqliteCommand<[]>
  readonly rollbackToSavepoint: SqliteCommand<[]>
  readonly release: SqliteCommand<[]>
  /**
   * (how many, epoch): the last of that many new tokens; no row if the file has moved on to another run of some
   * machine.
   */
  readonly takeTokens: SqliteQuery<[number, number], { token: number }>
  readonly expire: SqliteQuery<[number], GoneRow>
  readonly nextExpiry: SqliteQuery<[], { at: number | null }>

  /** (key): up to two entries of a line: none, its only one, or two to say that it has a row of totals. */
  readonly peek: SqliteQuery<[string], { state: number; weight: number; limit: number }>
  readonly line: SqliteQuery<[string], LineRow>
  readonly putLine: SqliteCommand<[string, number, number, number, number, number]>
  readonly removeLine: SqliteCommand<[string]>
  /** (key): one waiter fewer. */
  readonly shortenLine: SqliteCommand<[string]>

  readonly entryExists: SqliteQuery<[string, string], { found: number }>
  readonly entryByToken: SqliteQuery<[string, number], EntryRow>
  readonly insert: SqliteCommand<
    [string, string, number, number, number, number, number, number, number, number, number | null, number, string]
  >
  /**
   * (token of the first, weight, limit, ttl, until, now, now, client, holder, places): those of the places whose lines
   * are empty, holding.
   */
  readonly insertAll: SqliteCommand<[number, number, number, number, number, number, number, number, string, string]>
  readonly markCrowded: SqliteCommand<[string]>
  readonly renew: SqliteQuery<[number, number, string, string], { state: number; token: number }>
  /** `alone`: it was the only entry of its line, so there is nothing to settle. */
  readonly remove: SqliteQuery<[string, string], GoneRow & { readonly alone: number }>
  /** (places): those of them that are alone. */
  readonly removeAll: SqliteCommand<[string]>
  readonly grant: SqliteCommand<[number, number, string, string]>
  /**
   * (now, our engine, weight, limit, key): the first waiter holds, if it wants just that, and the only holder has
   * just gone. `waiting` counts it, too.
   */
  readonly handOff: SqliteQuery<[number, number, number, number, string], EntryRow & { readonly waiting: number }>
  readonly detach: SqliteCommand<[string, string]>
  /** (news, key, id): it holds on, and its owner is answered that it is gone. */
  readonly forbidRenewal: SqliteCommand<[number, string, string]>
  readonly evict: SqliteCommand<[number, string, string]>

  readonly firstWaiter: SqliteQuery<[string], EntryRow>
  /**
   * (key): the smallest limit among several holders, and how many have it. Walks the holders; needed only when the last
   * one with the old smallest limit leaves.
   */
  readonly smallestLimit: SqliteQuery<[string], { limit: number; count: number }>
  readonly holders: SqliteQuery<[string], { client: number }>
  readonly onlyHolder: SqliteQuery<[string], { client: number }>

  readonly newsFor: SqliteQuery<[number], EntryRow & { readonly evicted: number }>
  readonly wholeLine: SqliteQuery<[string], WholeEntryRow>
  readonly lines: SqliteQuery<[string, string, number], { key: string; held: number; waiting: number }>
  /** (key): changes whenever an entry comes, holds or goes. */
  readonly fingerprint: SqliteQuery<[string], { print: string }>
  readonly version: SqliteQuery<[], { data_version: number }>

  readonly addClient: SqliteQuery<[string | null, number | null, string | null, string, number], { client: number }>
  readonly setGroups: SqliteCommand<[string, number]>
  readonly client: SqliteQuery<[number], ClientRow>
  readonly someClients: SqliteQuery<[number], ClientRow>
  readonly removeClient: SqliteCommand<[number]>
  readonly isInLine: SqliteQuery<[number], { found: number }>
  /** (client): everything of it, everywhere. Walks all entries: done once for a dead process. */
  readonly removeOf: SqliteQuery<[number], GoneRow>
}

/**
 * (how many, epoch). Seeded from the wall clock, in microseconds, so that tokens go on after the file was lost or
 * restored from a backup. The bound keeps them exact in a double.
 */
export const TAKE_TOKENS = `update holdfast_file
  set token = max(token, min(cast(unixepoch('subsec') * 1000000 as integer), 4503599627370496)) + ? where epoch = ? returning token`

export function prepare(database: BroughtDatabase): SqliteStatements {
  const q = <Values extends (string | number | null)[], Row>(sql: string): SqliteQuery<Values, Row> =>
    query(database, sql)
  const c = <Values extends (string | number | null)[]>(sql: string): SqliteCommand<Values> => command(database, sql)
  return {
    begin: c('begin immediate'),
    commit: c('commit'),
    savepoint: c('savepoint holdfast'),
    rollbackToSavepoint: c('rollback to holdfast'),
    release: c('release holdfast'),

    takeTokens: q(TAKE_TOKENS),
    expire: q(`delete from holdfast_entry where expires_at <= ? returning ${GONE}`),
    nextExpiry: q('select min(expires_at) as at from holdfast_entry'),

    peek: q('select state, weight, "limit" from holdfast_entry where key = ? and state < 2 limit 2'),
    line: q('select held, weight, "limit", at_limit, waiting from holdfast_line where key = ?'),
    putLine: c(
      'insert or replace into holdfast_line (key, held, weight, "limit", at_limit, waiting) values (?, ?, ?, ?, ?, ?)',
    ),
    removeLine: c('delete from holdfast_line where key = ?'),
    shortenLine: c('update holdfast_line set waiting = waiting - 1 where key = ?'),

    entryExists: q('select 1 as found from holdfast_entry where key = ? and id = ?'),
    entryByToken: q(`select ${ENTRY} from holdfast_entry where key = ? and token = ? and state < 2`),
    insert: c(`insert into holdfast_entry
      (key, id, token, state, alone, weight, "limit", ttl_ms, expires_at, entered_at, held_at, client, holder, evicted, news)
      values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0) on conflict do nothing`),
    // Places are JSON: [[key, id], ...].
    insertAll: c(`insert into holdfast_entry
      (key, id, token, state, alone, weight, "limit", ttl_ms, expires_at, entered_at, held_at, client, holder, evicted, news)
      select place.value ->> 0, place.value ->> 1, ? + place.key, 1, 1, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0 from json_each(?) as place
      where not exists (select 1 from holdfast_entry as other where other.key = place.value ->> 0)`),
    markCrowded: c('update holdfast_entry set alone = 0 where key = ? and alone = 1'),
    // An entry of no engine is to outlive its process: a renewal from before that comes late does not cut it short.
    renew: q(`update holdfast_entry set ttl_ms = ?, expires_at = max(?, iif(client = 0, expires_at, 0)), news = 0
      where key = ? and id = ? and evicted = 0 returning state, token`),
    remove: q(`delete from holdfast_entry where key = ? and id = ? and state < 2 returning ${GONE}, alone`),
    removeAll: c(`delete from holdfast_entry where alone = 1 and state < 2
      and (key, id) in (select place.value ->> 0, place.value ->> 1 from json_each(?) as place)`),
    grant: c('update holdfast_entry set state = 1, held_at = ?, news = ? where key = ? and id = ?'),
    handOff: q(`update holdfast_entry set state = 1, held_at = ?1, news = client <> ?2
      where weight = ?3 and "limit" = ?4 and key = ?5 and (select held from holdfast_line where key = ?5) = 1
      and id = (select id from holdfast_entry indexed by holdfast_order where key = ?5 and state = 0 and alone = 0 order by token limit 1)
      returning ${ENTRY}, (select waiting from holdfast_line where key = ?5) as waiting`),
    detach: c('update holdfast_entry set client = 0 where key = ? and id = ?'),
    forbidRenewal: c('update holdfast_entry set evicted = 1, news = ? where key = ? and id = ?'),
    evict: c('update holdfast_entry set state = 2, evicted = 1, news = ? where key = ? and id = ?'),

    firstWaiter: q(`select ${ENTRY} from holdfast_entry indexed by holdfast_order
      where key = ? and state = 0 and alone = 0 order by token limit 1`),
    smallestLimit: q(`select "limit", count(*) as count from holdfast_entry indexed by holdfast_order
      where key = ? and state = 1 and alone = 0 group by "limit" order by "limit" limit 1`),
    holders: q(
      'select distinct client from holdfast_entry indexed by holdfast_order where key = ? and state = 1 and alone = 0',
    ),
    onlyHolder: q('select client from holdfast_entry where key = ? and state = 1'),

    newsFor: q(`select ${ENTRY}, evicted from holdfast_entry indexed by holdfast_news where client = ? and news = 1`),
    wholeLine: q(
      `select ${ENTRY}, holder, ttl_ms, entered_at, held_at, evicted from holdfast_entry
        where key = ? and state < 2 order by token`,
    ),
    lines: q(`select key, sum(state = 1) as held, sum(state = 0) as waiting from holdfast_entry
      where key >= ? and key <> ? and state < 2 group by key order by key limit ?`),
    fingerprint: q(
      `select count(*) || ' ' || sum(state) || ' ' || sum(token & 4294967295) as print from holdfast_entry where key = ? and state < 2`,
    ),
    version: q(`pragma ${schemaOf(database)}.data_version`),

    addClient: q(
      'insert into holdfast_client (realm, pid, born, groups, since) values (?, ?, ?, ?, ?) returning client',
    ),
    setGroups: c('update holdfast_client set groups = ? where client = ?'),
    client: q('select * from holdfast_client where client = ?'),
    someClients: q('select * from holdfast_client order by random() limit ?'),
    removeClient: c('delete from holdfast_client where client = ?'),
    isInLine: q('select 1 as found from holdfast_entry where client = ? limit 1'),
    removeOf: q(`delete from holdfast_entry where client = ? returning ${GONE}`),
  }
}
