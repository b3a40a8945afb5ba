/**
 * Records three runs of real processes, and draws them as docs/pictures/*.svg: `node scripts/record-timelines.mjs
 * [name]`, after `npm run build`. Every time in the pictures is one that was measured in that run.
 *
 * `hand-off` is what examples/hand-off.mjs prints, `refused-write` is what examples/fencing.mjs tells, and `lost-lease`
 * is a holder on Redis that is cut off from its server by a proxy.
 */
import assert from 'node:assert/strict'
import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { BEFORE, tell } from '../examples/fencing/story.mjs'
import { drawTimeline } from './timeline.mjs'

/** Of the lost lease: how long it is held before the cut, and how long the next one is shown. */
const BEFORE_CUT_MS = 1500
const AFTER_HOLD_MS = 400

const stories = { 'hand-off': handOff, 'refused-write': refusedWrite, 'lost-lease': lostLease }
const chosen = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(stories)
mkdirSync('docs/pictures', { recursive: true })
for (const name of chosen) writeFileSync(`docs/pictures/${name}.svg`, drawTimeline(await stories[name]()))

/** The moment of an event. */
function when(events, who, did) {
  const event = events.find((each) => each.who === who && each.did.startsWith(did))
  assert.ok(event, `${who} ${did}`)
  return event.atMs
}

function handOff() {
  const printed = execFileSync(process.execPath, ['examples/hand-off.mjs'], { encoding: 'utf8' })
  const events = [...printed.matchAll(/^ *(\d+) ms {2}( *)(\S.*)$/gm)].map(([, ms, indent, did]) => ({
    atMs: Number(ms),
    who: 'ABC'[indent.length / 22],
    did,
  }))
  const at = (who, did) => when(events, who, did)
  const end = at('C', 'releases')
  return {
    title:
      'A hand-off on SQLite: A releases and B holds at once; B is killed, and C holds long before the ttl of 30 s.',
    lanes: [
      {
        name: 'process A',
        bars: [{ state: 'holds', fromMs: at('A', 'holds'), toMs: at('A', 'releases') }],
        marks: [{ atMs: at('A', 'releases'), text: 'releases' }],
      },
      {
        name: 'process B',
        bars: [
          { state: 'waits', fromMs: at('B', 'waits'), toMs: at('B', 'holds') },
          { state: 'holds', fromMs: at('B', 'holds'), toMs: at('B', '━━') },
        ],
        marks: [
          {
            atMs: at('B', 'holds'),
            text: `holds ${Math.round(at('B', 'holds') - at('A', 'releases'))} ms later`,
            kind: 'good',
          },
          { atMs: at('B', '━━'), text: 'kill -9', kind: 'bad', row: 'below' },
        ],
      },
      {
        name: 'process C',
        bars: [
          { state: 'waits', fromMs: at('C', 'waits'), toMs: at('C', 'holds') },
          { state: 'holds', fromMs: at('C', 'holds'), toMs: end },
        ],
        marks: [
          {
            atMs: at('C', 'holds'),
            text: `holds ${Math.round(at('C', 'holds') - at('B', '━━'))} ms after the kill`,
            kind: 'good',
          },
        ],
      },
    ],
  }
}

async function refusedWrite() {
  const { events, balance, expected } = await tell(true)
  assert.equal(balance, expected)
  const at = (who, did) => when(events, who, did)
  const [wrote] = events.filter(({ who, did }) => who === 'B' && did === 'wrote')
  const end = at('A', 'refused')
  return {
    title:
      'A write that is refused: A is stopped while it holds, B takes over and writes, A wakes up and writes too late.',
    lanes: [
      {
        name: 'process A',
        note: 'ttl 600 ms',
        bars: [
          { state: 'holds', fromMs: at('A', 'took'), toMs: at('A', 'stopped') },
          {
            state: 'stopped',
            fromMs: at('A', 'stopped'),
            toMs: at('A', 'woke'),
            text: 'stopped, and cannot know that its lease ends',
          },
        ],
        marks: [
          { atMs: at('A', 'read'), text: `holds, reads ${BEFORE}`, row: 'below' },
          { atMs: at('A', 'stopped'), text: 'SIGSTOP', kind: 'bad' },
          { atMs: at('A', 'woke'), text: 'SIGCONT' },
          { atMs: end, text: 'writes, with the old token: refused', kind: 'good', row: 'below' },
        ],
      },
      {
        name: 'process B',
        bars: [{ state: 'holds', fromMs: at('B', 'took'), toMs: wrote.atMs }],
        marks: [
          { atMs: at('B', 'took'), text: 'holds, with a higher token', kind: 'good' },
          { atMs: wrote.atMs, text: `writes ${wrote.balance}`, row: 'below' },
        ],
      },
      {
        name: 'the account',
        note: 'behind a guard',
        bars: [],
        marks: [
          { atMs: at('A', 'took'), text: `balance ${BEFORE}` },
          { atMs: wrote.atMs, text: `balance ${wrote.balance}` },
          { atMs: end, text: `still ${balance}`, kind: 'good', row: 'below' },
        ],
      },
    ],
  }
}

async function lostLease() {
  const { RedisServer, findOwnRedis } = await import('../dist/test/servers/redis.js')
  const { FaultProxy } = await import('../dist/test/servers/proxy.js')
  const source = await findOwnRedis()
  assert.ok('program' in source, source.reason)
  const server = await RedisServer.start(source)
  const proxy = await FaultProxy.start({ port: server.port })
  try {
    return lostLeaseTimeline(await cutOffHolder(server.port, proxy))
  } finally {
    await proxy[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  }
}

/** A holds through the proxy, B waits for it beside the proxy, and the proxy lets nothing through any more. */
async function cutOffHolder(port, proxy) {
  const events = []
  const startedAt = performance.now()
  const note = (who, did) => events.push({ who, did, atMs: performance.now() - startedAt })
  const start = (who, at) => {
    const child = fork(new URL('lost-lease-worker.mjs', import.meta.url), [`redis://127.0.0.1:${at}`])
    child.on('message', (did) => note(who, did))
    return child
  }
  const until = async (who, did) => {
    while (!events.some((event) => event.who === who && event.did === did)) await sleep(1)
  }
  const a = start('A', proxy.port)
  await until('A', 'holds')
  const b = start('B', port)
  await until('B', 'waits')
  await sleep(BEFORE_CUT_MS)
  note('A', 'cut off')
  proxy.blackHole()
  await until('B', 'holds')
  await sleep(AFTER_HOLD_MS)
  note('B', 'ends')
  await proxy.heal()
  b.send('release')
  await Promise.all([once(a, 'exit'), once(b, 'exit')])
  return events
}

function lostLeaseTimeline(events) {
  const at = (who, did) => when(events, who, did)
  assert.ok(at('A', 'aborted') < at('B', 'holds'), 'the holder knew before the next one held')
  const fromMs = at('A', 'cut off') - BEFORE_CUT_MS
  const laterMs = Math.round(at('B', 'holds') - at('A', 'aborted'))
  return {
    title: 'A lost lease on Redis: A is cut off from the server. Its signal aborts before B holds the lock.',
    lanes: [
      {
        name: 'process A',
        note: 'ttl 2 s',
        bars: [{ state: 'holds', fromMs, toMs: at('A', 'aborted'), text: 'holds, and renews' }],
        marks: [
          { atMs: at('A', 'cut off'), text: 'cut off from Redis', kind: 'bad' },
          { atMs: at('A', 'jeopardy'), text: 'jeopardy', row: 'below' },
          { atMs: at('A', 'aborted'), text: 'lease.signal aborts', kind: 'good' },
        ],
      },
      {
        name: 'process B',
        bars: [
          { state: 'waits', fromMs, toMs: at('B', 'holds') },
          { state: 'holds', fromMs: at('B', 'holds'), toMs: at('B', 'ends') },
        ],
        marks: [{ atMs: at('B', 'holds'), text: `holds, ${laterMs} ms after A was told`, kind: 'good', row: 'below' }],
      },
    ],
  }
}
