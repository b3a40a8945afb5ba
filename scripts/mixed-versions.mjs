/**
 * Two versions of Holdfast in one fleet: `npm run versions -- COMMIT [engine ...]`, after `npm run build`.
 *
 * It builds the version of a commit of this repository beside the present one (in .cache/versions), starts processes
 * of both on one server, and has them share locks, records and jobs. Each check is made twice, with the versions in
 * either place; the one that is named first makes the tables. The last line is `N passed, N failed, N skipped`: a check
 * is skipped where one of the versions says that it cannot do such a thing on this engine.
 */
import assert from 'node:assert/strict'
import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const [, , ref, ...chosen] = process.argv
if (ref === undefined) {
  console.error('which commit? npm run versions -- COMMIT [engine ...]')
  process.exit(64)
}
const work = mkdtempSync(join(tmpdir(), 'holdfast-versions-'))
const old = built(execFileSync('git', ['rev-parse', '--short', `${ref}^{commit}`], { encoding: 'utf8' }).trim())
const present = { root: resolve('.'), name: 'present' }

/** A server for one pair of versions. */
const server = async (file, find, type) => {
  const module = await import(`../dist/test/servers/${file}.js`)
  const source = await module[find]()
  if (!('program' in source)) return { missing: source.reason }
  const started = await module[type].start(source)
  return { url: started.url, stop: () => started[Symbol.asyncDispose]() }
}

const engines = {
  sqlite: async () => ({ url: `sqlite:${join(mkdtempSync(join(work, 'file-')), 'locks.db')}`, stop: async () => {} }),
  redis: () => server('redis', 'findOwnRedis', 'RedisServer'),
  postgres: () => server('postgres', 'findOwnPostgres', 'PostgresServer'),
  mysql: () => server('mariadb', 'findOwnMariadb', 'MariadbServer'),
  etcd: () => server('etcd', 'findOwnEtcd', 'EtcdServer'),
  zookeeper: () => server('zookeeper', 'findOwnZooKeeper', 'ZooKeeperServer'),
}

/** The version of a commit, compiled by the tools of the present one. */
function built(sha) {
  const root = resolve('.cache', 'versions', sha)
  if (!existsSync(join(root, 'dist', 'src', 'index.js'))) {
    console.log(`building ${sha}`)
    rmSync(root, { recursive: true, force: true })
    mkdirSync(root, { recursive: true })
    const archive = execFileSync('git', ['archive', sha], { maxBuffer: 2 ** 28 })
    execFileSync('tar', ['-x', '-C', root], { input: archive })
    symlinkSync(resolve('node_modules'), join(root, 'node_modules'))
    execFileSync('npm', ['run', 'build'], { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] })
  }
  return { root, name: sha }
}

const LIMIT_MS = 60_000

class Process {
  #child
  #name
  #answers = new Map()
  #last = 0

  static async start({ root, name }, url) {
    const process = new Process()
    process.#name = name
    process.#child = fork(new URL('mixed-versions-worker.mjs', import.meta.url), [root, url, name])
    process.#child.on('message', (answer) => process.#heard(answer))
    process.#child.on('exit', () => {
      for (const id of process.#answers.keys()) process.#heard({ id, error: 'has ended' })
    })
    await process.#answer(0, 'to start')
    return process
  }

  do(order, ...args) {
    const id = ++this.#last
    this.#child.send({ id, order, args })
    const answer = this.#answer(id, order)
    // A check may do something else before it looks at the answer.
    answer.catch(() => {})
    return answer
  }

  #answer(id, order) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => this.#heard({ id, error: `${order} took too long` }), LIMIT_MS)
      this.#answers.set(id, { resolve, reject, late })
    })
  }

  #heard({ id, answer, error, unsupported }) {
    const { resolve, reject, late } = this.#answers.get(id) ?? {}
    this.#answers.delete(id)
    clearTimeout(late)
    if (error === undefined) resolve?.(answer)
    else reject?.(Object.assign(new Error(`${this.#name}: ${error}`), { unsupported }))
  }

  async kill() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await ended
  }
}

/** What two versions have to do together. `one` and `other` are processes, `key` is new for each check. */
const checks = {
  'a lock held by one is refused to the other, which sees who holds it': async ({ one, other, key, names }) => {
    await one.do('hold', key)
    assert.equal(await other.do('try', key), false)
    assert.deepEqual(await other.do('line', key), [names[0]])
    await one.do('release', key)
    assert.equal(await other.do('try', key), true)
  },
  'a release of one wakes the other, with a higher token': async ({ one, other, key }) => {
    const first = await one.do('hold', key)
    const waiting = other.do('hold', key)
    const since = Date.now()
    while ((await one.do('line', key)).length < 2) assert.ok(Date.now() - since < LIMIT_MS, 'it stands in line')
    await one.do('release', key)
    assert.ok(BigInt(await waiting) > BigInt(first))
    await other.do('release', key)
  },
  'many turns of both lose no update, and tokens rise': async ({ one, other, key }) => {
    const file = join(work, key)
    writeFileSync(file, '0')
    const turns = await Promise.all([one.do('count', key, file, 100), other.do('count', key, file, 100)])
    assert.equal(readFileSync(file, 'utf8'), '200')
    const tokens = turns
      .flat()
      .toSorted(([a], [b]) => a - b)
      .map(([, token]) => BigInt(token))
    assert.ok(tokens.every((token, index) => index === 0 || token > tokens[index - 1]))
  },
  'a result that one has stored is replayed by the other': async ({ one, other, key }) => {
    const first = await one.do('once', key)
    assert.equal(first.replayed, false)
    assert.deepEqual(await other.do('once', key), { ...first, replayed: true })
  },
  'a tick that one has claimed is not run by the other': async ({ one, other, key }) => {
    const at = Date.now() - 1000
    assert.equal(await one.do('tick', key, at), 'ran')
    assert.equal(await other.do('tick', key, at), 'claimed')
  },
  'work that one began before it was killed is taken over by the other, under the same id': async ({
    one,
    other,
    key,
  }) => {
    const id = await one.do('hang', key)
    const waiting = other.do('once', key)
    await one.kill()
    const { replayed, ...result } = await waiting
    assert.deepEqual({ id: result.id, at: result.at, replayed }, { id, at: 2, replayed: false })
  },
}

const total = { passed: 0, failed: 0, skipped: 0 }
for (const name of chosen.length > 0 ? chosen : Object.keys(engines))
  for (const versions of [
    [old, present],
    [present, old],
  ])
    await pair(name, versions)
rmSync(work, { recursive: true, force: true })
console.log(counted(total))
process.exitCode = total.failed === 0 ? 0 : 1

function counted({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`
}

async function pair(engine, versions) {
  const names = versions.map(({ name }) => name)
  const title = `${engine}, ${names.join(' and ')}`
  const { url, stop, missing } = await engines[engine]()
  if (missing !== undefined) {
    total.skipped += Object.keys(checks).length
    console.log(`${title}: ${missing}`)
    return
  }
  const tally = { passed: 0, failed: 0, skipped: 0 }
  const processes = []
  for (const version of versions) processes.push(await Process.start(version, url))
  for (const [index, [what, check]] of Object.entries(checks).entries()) {
    try {
      await check({ one: processes[0], other: processes[1], key: `mixed-${index}`, names })
      tally.passed += 1
    } catch (error) {
      tally[error.unsupported ? 'skipped' : 'failed'] += 1
      console.log(`${title}: ${what}: ${error.unsupported ? error.message.split('\n')[0] : error.stack}`)
    }
  }
  console.log(`${title}: ${counted(tally)}`)
  for (const kind of Object.keys(total)) total[kind] += tally[kind]
  for (const each of processes) await each.kill()
  await stop()
}
