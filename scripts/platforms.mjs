/**
 * The tables of docs/platforms.md, and the line of README.md, out of what the matrix has found
 * (test/matrix/results.json). They stand between two marks in the page, and are never written by hand:
 * test/platforms.test.ts compares.
 */
import { readFileSync, writeFileSync } from 'node:fs'

/** Which engines each runtime plays. */
export const RUNTIME_ENGINES = ['memory', 'sqlite', 'redis', 'postgres', 'etcd']

/** The libraries that a user may bring. */
export const CLIENT_PACKAGES = ['ioredis', 'redis', '@valkey/valkey-glide', 'pg', 'postgres', 'mysql2', 'mongodb']

/** By the place that a server takes: the engine whose conformance it is, and the files that run on it besides. */
export const SERVER_TESTS = {
  redis: { engine: 'redis', files: files('redis.clients', 'redis.store', 'guards.redis') },
  mariadb: { engine: 'mysql', files: files('mysql.clients', 'mysql.store', 'guards.mysql', 'transactions.mysql') },
  postgresql: {
    engine: 'postgres',
    files: files(
      'postgres.clients',
      'postgres.store',
      'guards.postgres',
      'transactions.postgres',
      'transactions.postgres.optimistic',
    ),
  },
  etcd: { engine: 'etcd', files: files('etcd.store', 'etcd.leases') },
  zookeeper: { engine: 'zookeeper', files: files('zookeeper.store', 'zookeeper.client') },
}

function files(...names) {
  return names.map((name) => `test/engines/${name}.test.ts`)
}

const TITLES = { memory: 'memory', sqlite: 'SQLite', redis: 'Redis', postgres: 'PostgreSQL', etcd: 'etcd' }
const PAGES = { 'docs/platforms.md': tables, 'README.md': line }
/** Of one runtime, server or client. */
const MOST_SHOWN = 5
const BEGIN = '<!-- begin: npm run matrix -->'
const END = '<!-- end: npm run matrix -->'

export function writePages(results) {
  for (const [page, make] of Object.entries(PAGES))
    writeFileSync(page, withTables(readFileSync(page, 'utf8'), make(results)))
}

/** The pages whose tables are not what the results say. */
export function outdatedPages(results) {
  return Object.entries(PAGES).flatMap(([page, make]) => {
    const text = readFileSync(page, 'utf8')
    return withTables(text, make(results)) === text ? [] : [page]
  })
}

function withTables(text, made) {
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)]
  if (begin < 0 || end < begin) throw new Error(`the marks ${BEGIN} and ${END} are missing`)
  return `${text.slice(0, begin + BEGIN.length)}\n\n${made}\n\n${text.slice(end)}`
}

/** Cells of one kind: the words of their ids behind the kind, and what came out. */
function cellsOf(results, kind) {
  return Object.entries(results).flatMap(([id, result]) => {
    const [first, ...words] = id.split(' ')
    return first === kind ? [{ id, words, result }] : []
  })
}

function tables(results) {
  const parts = [
    '### Runtimes',
    runtimes(cellsOf(results, 'runtime')),
    '### Servers',
    servers(cellsOf(results, 'server')),
    '### Clients',
    clients(cellsOf(results, 'client')),
    '### What failed',
    failures(results),
  ]
  return parts.join('\n\n')
}

function runtimes(cells) {
  const names = unique(cells.map(({ words: [name] }) => name)).toSorted(byNumber)
  const rows = names.map((name) => {
    const own = cells.filter(({ words }) => words[0] === name)
    const of = (engine) => own.find(({ words }) => words[1] === engine)?.result
    const { server: sqlite = '' } = of('sqlite') ?? {}
    return [
      unique(own.map(({ result }) => result.runtime ?? name)).join(', '),
      ...RUNTIME_ENGINES.map((engine) => outcome(of(engine))),
      sqlite.replace(/^SQLite /, ''),
      dates(own),
    ]
  })
  const heads = ['runtime', ...RUNTIME_ENGINES.map((engine) => TITLES[engine]), 'its SQLite', 'run on']
  const beside = unique(
    cells.flatMap(({ words: [, engine], result: { server } }) => (server && engine !== 'sqlite' ? [server] : [])),
  )
  return `${table(heads, rows)}\n\nServers: ${beside.map(short).toSorted(alphabetically).join('; ')}.`
}

function servers(cells) {
  const rows = cells.map(({ words: [name], result }) => [
    short(result.server ?? name),
    name,
    outcome(result),
    result.tests === undefined ? '' : outcome(result.tests),
    result.on,
  ])
  return table(['server', 'from', 'conformance', 'clients, guards, transactions', 'run on'], rows)
}

function clients(cells) {
  const names = unique(cells.map(({ words: [name] }) => name))
  const rows = names.map((name) => {
    const of = (which) => cells.find(({ words }) => words[0] === name && words[1] === which)?.result
    const shown = (result) => (result === undefined ? '' : `${result.client?.split(' ')[1] ?? '?'}: ${outcome(result)}`)
    const own = cells.filter(({ words }) => words[0] === name)
    // What answers there says that it is MongoDB, as a stand-in has to.
    const server = `${name === 'mongodb' ? 'a stand-in for ' : ''}${short(of('newest')?.server ?? '')}`
    return [`\`${name}\``, shown(of('oldest')), shown(of('newest')), server, dates(own)]
  })
  return table(['package', 'oldest', 'newest', 'server', 'run on'], rows)
}

function failures(results) {
  const lines = Object.entries(results).flatMap(([id, { failed, tests }]) => {
    const all = [...failed, ...(tests?.failed ?? [])]
    const shown = all.slice(0, MOST_SHOWN).map(({ name, why }) => `| ${id} | ${cell(name)} | ${cell(why)} |`)
    return all.length <= MOST_SHOWN ? shown : [...shown, `| ${id} | and ${all.length - MOST_SHOWN} more | |`]
  })
  if (lines.length === 0) return 'Nothing, in the runs above.'
  return ['| where | what | why |', '|---|---|---|', ...lines].join('\n')
}

/** `152 passed`, and what else there is to say. */
function outcome(result) {
  if (result === undefined) return ''
  const { passed, failed, unsteady = [] } = result
  const bad = failed.length === 0 ? '' : `, **${failed.length} failed**`
  const late = unsteady.length === 0 ? '' : `, ${unsteady.length} when played again`
  return `${passed + unsteady.length} passed${late}${bad}`
}

/** Without what a finding says besides, and without the words of a distribution. */
function short(server) {
  return server.split(/[,:]/)[0].replace(/-\d[\w.+~-]*$|-MariaDB.*$/, '')
}

function cell(text) {
  return text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ')
}

function dates(cells) {
  return unique(cells.map(({ result }) => result.on))
    .toSorted(alphabetically)
    .join(', ')
}

function unique(values) {
  return [...new Set(values)]
}

function byNumber(a, b) {
  return new Intl.Collator('en', { numeric: true }).compare(a, b)
}

function table(heads, rows) {
  const lines = [heads, heads.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`)
  return lines.join('\n').replaceAll('| --- ', '|---').replaceAll('--- |', '---|')
}

/** What passed everything, and what did not, in one sentence each. */
function line(results) {
  const good = (kind) => cellsOf(results, kind).filter(({ result }) => !hasFailed(result))
  const all = cellsOf(results, 'runtime')
  const named = unique(all.map(({ result }) => result.runtime))
  const bad = unique(all.filter(({ result }) => hasFailed(result)).map(({ result }) => result.runtime))
  const runtimesSaid = named
    .filter((name) => !bad.includes(name))
    .toSorted(byNumber)
    .join(', ')
  const serversSaid = unique(good('server').map(({ words: [name], result }) => short(result.server ?? name)))
    .toSorted(byNumber)
    .join(', ')
  const days = unique(Object.values(results).map(({ on }) => on)).toSorted(alphabetically)
  const sentences = [
    `**Tested on** ${[runtimesSaid, serversSaid].filter((said) => said !== '').join('; ')}.`,
    ...(bad.length === 0 ? [] : [`Not all passes on ${bad.toSorted(byNumber).join(', ')}.`]),
    `Last run: ${days.at(-1)}. [All results](docs/platforms.md).`,
  ]
  return wrapped(sentences.join(' '), 100)
}

/** Whether anything did: a case, or a test of a file. */
export function hasFailed({ failed, tests }) {
  return failed.length > 0 || (tests?.failed.length ?? 0) > 0
}

function alphabetically(a, b) {
  return a < b ? -1 : 1
}

function wrapped(text, columns) {
  const lines = ['']
  for (const word of text.split(' ')) {
    const last = lines.at(-1)
    if (last !== '' && last.length + 1 + word.length > columns) lines.push(word)
    else lines[lines.length - 1] = last === '' ? word : `${last} ${word}`
  }
  return lines.join('\n')
}
