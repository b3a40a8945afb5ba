/**
 * The stand-in as a process of its own, with the arguments of mongod that it understands: `--port`, `--dbpath` and
 * `--replSet`. It ends by a signal. A file of milliseconds beside the journal, if there is one, moves its clock.
 */
import { readFileSync, statSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { StandInServer } from './server.ts'

const OPTIONS = {
  port: { type: 'string', default: '27017' },
  dbpath: { type: 'string', default: '.' },
  replSet: { type: 'string' },
  version: { type: 'boolean' },
} as const

/** Read again when the file has changed. */
function followClock(file: string): void {
  const clock = Date.now
  let [seen, movedByMs] = [0, 0]
  Date.now = () => {
    const changed = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
    if (changed !== seen) {
      seen = changed
      movedByMs = changed === 0 ? 0 : Number(readFileSync(file, 'utf8'))
    }
    return clock() + movedByMs
  }
}

const { values } = parseArgs({ options: OPTIONS, strict: false })
if (values.version === true) {
  writeSync(1, 'stand-in for mongod\n')
  process.exit()
}
const journal = join(String(values.dbpath), 'journal')
followClock(`${journal}.clock`)
const server = new StandInServer(values.replSet !== undefined)
server.data.open(journal)
await server.listen(Number(values.port))
process.once('SIGTERM', () => void server.close())
