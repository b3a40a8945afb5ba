/**
 * How test files that start servers run side by side: in lanes.
 *
 * A lane is a worker of vitest. It runs one file at a time, and takes the next one when it is done. There are two
 * lanes more than cores: files mostly wait, and a lane keeps less than half a core busy. With more, leases would be
 * lost for want of a processor. The longest file goes first: one that starts last would leave the other lanes idle.
 *
 * How long files take is in seconds.json, which `npm test -- --record` writes (on a quiet machine). A file that is not
 * in there is taken to be of middling length. `node scripts/lanes.mjs` prints what to expect of them.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BaseSequencer } from 'vitest/node'

const TABLE = new URL('seconds.json', import.meta.url)
const UNKNOWN_SECONDS = 15
/** Beyond, memory is what runs out: a lane can have half a dozen servers. */
const MOST_LANES = 8

/** A server that is not ours is shared by all files. They would find each other's keys there. */
const sharesServers = Object.keys(process.env).some((name) => /^HOLDFAST_TEST_\w+_URL$/.test(name))

export const lanes = sharesServers ? 1 : Math.min(Math.max(2, availableParallelism()) + 2, MOST_LANES)

const table = JSON.parse(readFileSync(TABLE, 'utf8'))

/** The sequencer that vitest.config.ts names. Vitest itself knows of the other files how long they took last time. */
export class LongestFirst extends BaseSequencer {
  async sort(files) {
    return longestFirst(await super.sort(files), ({ moduleId }) => secondsOf(relative('.', moduleId)))
  }
}

/** Write down how long files took: those that ran, beside what is known of the others that exist. */
export function record(measured) {
  const files = Object.fromEntries(testFiles().map((file) => [file, measured[file] ?? table[file]]))
  const known = Object.entries(files).filter(([, seconds]) => seconds !== undefined)
  const sorted = known.toSorted(([a], [b]) => (a < b ? -1 : 1))
  writeFileSync(TABLE, `${JSON.stringify(Object.fromEntries(sorted), undefined, 2)}\n`)
}

function testFiles() {
  const files = readdirSync('test', { recursive: true }).map((name) => join('test', name))
  return files.filter((file) => /^test.(?:facts|servers|engines|cli)\b.*\.test\.ts$/.test(file))
}

function secondsOf(file) {
  return table[file] ?? UNKNOWN_SECONDS
}

function longestFirst(items, seconds) {
  return items.toSorted((a, b) => seconds(b) - seconds(a))
}

/** Which files each lane would run, if all take as long as the table says. */
function plan(count) {
  const planned = Array.from({ length: count }, () => ({ seconds: 0, files: [] }))
  for (const file of longestFirst(testFiles(), secondsOf)) {
    const [next] = planned.toSorted((a, b) => a.seconds - b.seconds)
    next.seconds += secondsOf(file)
    next.files.push(file)
  }
  return planned
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const count = Number(process.argv[2] ?? lanes)
  const planned = plan(count)
  for (const { seconds, files } of planned) {
    console.log(`\n${seconds.toFixed(0)} s`)
    for (const file of files) console.log(`  ${secondsOf(file)} s: ${String(file)}${file in table ? '' : ' (unknown)'}`)
  }
  const each = planned.map(({ seconds }) => seconds)
  const sum = each.reduce((total, seconds) => total + seconds, 0)
  console.log(`\n${sum.toFixed(0)} s of tests in ${count} lanes: ${Math.max(...each).toFixed(0)} s`)
}
