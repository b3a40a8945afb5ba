/**
 * The story that every text on distributed locks tells, with real processes: A holds the lock and is stopped, for
 * longer than its lease; B takes over and writes; A wakes up and writes.
 *
 * `tell` runs it once and answers what happened. `heard` is called with each event as it comes: { atMs, who, did, ...
 * }.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openAccount } from './account.mjs'

export const BEFORE = 100
export const DEPOSIT = { A: 10, B: 50 }

export async function tell(guarded, heard = () => {}) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-fencing-'))
  const file = join(folder, 'bank.db')
  const account = await openAccount(file)
  account.setBalance(BEFORE)
  const startedAt = performance.now()
  const events = []
  const note = (event) => {
    events.push({ atMs: performance.now() - startedAt, ...event })
    heard(events.at(-1))
  }
  const workers = []
  const start = (who) => {
    const worker = new Worker(
      who,
      [who, `sqlite:${join(folder, 'locks.db')}`, file, guarded ? 'guarded' : 'bare', DEPOSIT[who]],
      note,
    )
    workers.push(worker)
    return worker
  }
  try {
    const a = start('A')
    await a.did('read')
    a.child.kill('SIGSTOP')
    // It will read this when it wakes.
    a.child.send('go')
    note({ who: 'A', did: 'stopped' })
    const b = start('B')
    await b.did('read')
    b.child.send('go')
    await b.did('wrote')
    await b.ended
    a.child.kill('SIGCONT')
    note({ who: 'A', did: 'woke' })
    await Promise.race([a.did('wrote'), a.did('refused')])
    await a.ended
    return {
      events,
      balance: account.balance(),
      expected: BEFORE + events.filter(({ did }) => did === 'wrote').reduce((sum, { who }) => sum + DEPOSIT[who], 0),
    }
  } finally {
    for (const { child } of workers) child.kill('SIGKILL')
    account.database.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

class Worker {
  constructor(who, args, note) {
    this.child = fork(new URL('worker.mjs', import.meta.url), args)
    this.ended = once(this.child, 'exit')
    this.seen = new Map()
    this.child.on('message', (message) => {
      note({ who, ...message })
      this.of(message.did).resolve()
    })
    this.child.on('exit', (code, signal) => {
      for (const { reject } of this.seen.values()) reject(new Error(`worker ${who} ended early (${code ?? signal})`))
    })
  }

  of(what) {
    if (!this.seen.has(what)) {
      let settle
      const promise = new Promise((resolve, reject) => {
        settle = { resolve, reject }
      })
      promise.catch(() => {})
      this.seen.set(what, { promise, ...settle })
    }
    return this.seen.get(what)
  }

  /** Resolves when it has said so. */
  did(what) {
    return this.of(what).promise
  }
}
