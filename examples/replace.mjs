// A newsletter has a group of members, and its owner uploads the whole list anew, in batches. Three servers take
// uploads. One is killed in the middle, and another goes on where it has stopped. A newer list comes while an older one
// is being uploaded: the older one is stopped for good. A reader who looks all the time sees one list or another, and
// never a mixture.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once as event } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from 'holdfast'
import { removeRetired, replace, SupersededError } from 'holdfast/replace'

const FILES = {
  monday: [['anna', 'ben'], ['carl'], ['dora', 'emil']],
  tuesday: [['anna'], ['fritz']],
  wednesday: [['anna'], ['dora', 'gerd']],
}

const MEMBERS = `
  SELECT m.email FROM email_groups g JOIN members m ON m.group_id = g.id AND m.generation = g.generation
  WHERE g.id = 7 ORDER BY m.email`

if (process.argv[2] === undefined) await town()
else await server(process.argv[2])

/** The database: locks, records and members are in one file. */
async function open(file) {
  const own = process.getBuiltinModule('node:sqlite')
  const { DatabaseSync } = own ?? (await import('@photostructure/sqlite'))
  const database = new DatabaseSync(file)
  database.exec('PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 10000')
  return database
}

async function inTransaction(database, work) {
  database.exec('BEGIN IMMEDIATE')
  try {
    const value = await work()
    database.exec('COMMIT')
    return value
  } catch (error) {
    database.exec('ROLLBACK')
    throw error
  }
}

/** What every server does. */
async function server(file) {
  const locks = await connect(`sqlite:${file}`, { ttl: '2s' })
  const database = await open(file)
  const insert = database.prepare('INSERT INTO members (group_id, generation, email) VALUES (7, ?, ?)')
  const flip = database.prepare('UPDATE email_groups SET generation = ? WHERE id = 7')

  const upload = (name) =>
    replace(locks, 'group:7', { newest: 'wins', upload: name }, async (turn) => {
      if (turn.stored > 0) say(`goes on with ${name}, of which ${turn.stored} batches are stored`)
      for await (const emails of turn.resume(FILES[name])) {
        await inTransaction(database, () =>
          turn.batch(database, () => {
            for (const email of emails) insert.run(turn.generation, email)
          }),
        )
        await askToGoOn(`has stored ${emails.join(' and ')} of ${name}`)
      }
      await inTransaction(database, () => turn.publish(database, (generation) => flip.run(generation)))
    })

  const outcomeOf = async (name) => {
    try {
      return (await upload(name)).state
    } catch (error) {
      if (error instanceof SupersededError) return 'superseded'
      throw error
    }
  }
  process.on('message', ({ name }) => {
    if (name !== undefined) void outcomeOf(name).then((outcome) => process.send({ name, outcome }))
  })
  process.send({ ready: true })
}

const say = (what) => process.send({ what })

/** The town decides when a server goes on, and which one is killed. */
async function askToGoOn(what) {
  process.send({ what, asks: true })
  const [message] = await event(process, 'message')
  assert.ok(message.goOn)
}

/** The owner of the group, the reader, and the one who pulls the plug. */
async function town() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-replace-'))
  const file = join(folder, 'newsletter.db')
  const database = await open(file)
  database.exec('CREATE TABLE email_groups (id INTEGER PRIMARY KEY, generation INTEGER)')
  database.exec('CREATE TABLE members (group_id INTEGER, generation INTEGER, email TEXT)')
  database.exec('INSERT INTO email_groups (id) VALUES (7)')

  const seen = new Set()
  const members = database.prepare(MEMBERS)
  const read = () =>
    seen.add(
      members
        .all()
        .map(({ email }) => email)
        .join(' '),
    )
  const reader = setInterval(read, 1)

  const start = async (name) => {
    const child = fork(fileURLToPath(import.meta.url), [file])
    await event(child, 'message')
    child.on('message', ({ what, outcome, ...told }) => {
      if (what !== undefined) console.log(`${name} ${what}`)
      if (outcome !== undefined) console.log(`${told.name} is ${outcome}`)
      if (outcome !== undefined) child.emit('outcome', outcome)
      else if (told.asks) child.emit('asks')
    })
    return child
  }
  const [one, two, three] = await Promise.all(['server 1', 'server 2', 'server 3'].map(start))
  const goOnFrom = (child) => child.on('asks', () => child.send({ goOn: true }))

  // Monday's list: server 1 is killed when it has stored two batches, and the queue gives the upload to server 2.
  one.send({ name: 'monday' })
  await event(one, 'asks')
  one.send({ goOn: true })
  await event(one, 'asks')
  console.log('server 1 is killed')
  one.kill('SIGKILL')
  await event(one, 'exit')
  two.send({ name: 'monday' })
  await event(two, 'asks')
  two.send({ goOn: true })
  await event(two, 'outcome')

  // Tuesday's list is being uploaded when Wednesday's comes.
  two.send({ name: 'tuesday' })
  await event(two, 'asks')
  const late = event(two, 'outcome')
  goOnFrom(three)
  const done = event(three, 'outcome')
  three.send({ name: 'wednesday' })
  // Server 2 has not noticed that it is late, or does not care. It can do nothing more.
  setTimeout(() => two.send({ goOn: true }), 100)
  assert.deepEqual([(await late)[0], (await done)[0]], ['superseded', 'published'])
  clearInterval(reader)
  read()
  console.log('a reader has seen', [...seen])
  const lists = ['', ...[FILES.monday, FILES.wednesday].map((batches) => batches.flat().sort().join(' '))]
  for (const list of seen) assert.ok(lists.includes(list), `a mixture: ${list}`)
  assert.deepEqual(
    members.all().map(({ email }) => email),
    ['anna', 'dora', 'gerd'],
  )

  // The rows of Monday and of Tuesday are waste.
  const locks = await connect(`sqlite:${file}`)
  const remove = database.prepare('DELETE FROM members WHERE group_id = 7 AND generation = ?')
  const removed = await removeRetired(locks, 'group:7', {
    begin: (work) => inTransaction(database, () => work(database)),
    remove: (_, generations) => {
      for (const generation of generations) remove.run(generation)
    },
  })
  console.log('rows of these generations are removed:', removed)
  assert.equal(database.prepare('SELECT * FROM members').all().length, 3)

  const living = [two, three]
  const ended = living.map((child) => event(child, 'exit'))
  for (const child of living) child.kill()
  await Promise.all(ended)
  await locks.close()
  database.close()
  rmSync(folder, { recursive: true })
}
