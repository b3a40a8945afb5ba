/**
 * The stand-in as a process of its own: `main.js PORT JOURNAL [replica-set]`. It ends with its parent's wish, by a
 * signal. A file of milliseconds beside the journal, if there is one, moves its clock.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { StandInServer } from './server.ts'

const [port = '', journal = '', mode] = process.argv.slice(2)

/** Read again when the file has changed. */
function followClock(file: string): void {
  const clock = Date.now
  let [seen, movedByMs] = [0, 0]
  Date.now = () => {
    const changed = existsSync(file) ? statSync(file).mtimeMs : 0
    if (changed !== seen) {
      seen = changed
      movedByMs = changed === 0 ? 0 : Number(readFileSync(file, 'utf8'))
    }
    return clock() + movedByMs
  }
}

followClock(`${journal}.clock`)
const server = new StandInServer(mode === 'replica-set')
server.data.open(journal)
await server.listen(Number(port))
process.once('SIGTERM', () => void server.close())
