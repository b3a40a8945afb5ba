// `npm run demo:fencing`: a stopped worker wakes up after its lease, and writes. Once without a guard, once with one;
// real processes, real SIGSTOP.
import assert from 'node:assert/strict'
import { stripVTControlCharacters } from 'node:util'
import { BEFORE, DEPOSIT, tell } from './fencing/story.mjs'

const colourful = process.stdout.isTTY && !process.env.NO_COLOR
const paint = (code) => (text) => (colourful ? `\u001b[${code}m${text}\u001b[0m` : text)
const [bold, dim, red, green, yellow] = [1, 2, 31, 32, 33].map(paint)

const WIDTH = 38
const SAYS = {
  took: ({ token }) => `holds the lock, token ${token.slice(-9)}`,
  read: ({ balance }) => `reads the balance: ${balance}`,
  stopped: () => yellow('━━ SIGSTOP ━━'),
  woke: () => yellow('━━ SIGCONT ━━'),
  wrote: ({ balance, held }) => (held ? bold(`writes ${balance}`) : red(`writes ${balance}, its lease long over`)),
  refused: ({ offered, seen }) => green(`is refused: ${offered.slice(-9)} < ${seen.slice(-9)}`),
}

let asleep = false

function show(event) {
  const { atMs, who, did } = event
  const says = SAYS[did](event)
  const time = dim(`${String(Math.round(atMs)).padStart(6)} ms`)
  const lane = asleep ? dim('┆') : '│'
  if (who === 'A') console.log(`${time}  ● ${padded(says)}${dim('│')}`)
  else console.log(`${time}  ${lane} ${' '.repeat(WIDTH)}● ${says}`)
  if (did === 'stopped') asleep = true
  if (did === 'woke') asleep = false
}

/** Colours take no room. */
function padded(text) {
  return text + ' '.repeat(Math.max(1, WIDTH - stripVTControlCharacters(text).length))
}

async function act(title, guarded) {
  console.log(`\n${bold(title)}`)
  console.log(dim(`           A deposits ${DEPOSIT.A}${' '.repeat(WIDTH - 11)}B deposits ${DEPOSIT.B}`))
  const { events, balance, expected } = await tell(guarded, show)
  const lost = expected - balance
  if (lost === 0)
    console.log(
      green(
        `           balance ${balance}: whatever was acknowledged is there. A knows that it has to do its work again.`,
      ),
    )
  else
    console.log(
      red(
        `           balance ${balance}, though ${expected} was acknowledged: ${lost} are lost, and no process knows.`,
      ),
    )
  return { events, balance, lost }
}

console.log(
  `The account has ${BEFORE}. A lease lives 600 ms without renewal; a stopped process does not renew. The locks are the SQLite default.`,
)
const bare = await act('Without a guard', false)
const guarded = await act('With a guard: holdfast/guards/sqlite', true)
console.log(
  '\nSame lock, same pause. The lock cannot prevent the late write; only what is written to can. docs/fencing.md says why.',
)

assert.equal(bare.lost, DEPOSIT.B, 'without a guard, the deposit of B is overwritten')
assert.equal(guarded.lost, 0)
assert.ok(guarded.events.some(({ did }) => did === 'refused'))
