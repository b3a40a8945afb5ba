/**
 * Forty-four mistakes that existing lock libraries make, and where it is shown that we do not. Each was read in a public library's source or seen by running it.
 *
 * A row names tests, by file and exact name, or says why it cannot apply yet. pitfalls.test.ts checks that the tests are there.
 */
export interface Pitfall {
  readonly number: number
  readonly mistake: string
  /** File and name of tests, or of conformance cases. */
  readonly shownBy?: readonly (readonly [file: string, name: string])[]
  /** Why there is nothing to show yet. */
  readonly notYet?: string
}

const NO_QUORUM = 'no engine asks several servers for votes yet'
const NO_SESSION = 'no engine has sessions yet'

export const pitfalls: readonly Pitfall[] = [
  // Safety
  {
    number: 1,
    mistake: 'a lock is returned although its time ran out while it was acquired',
    shownBy: [['test/unit/keeper-deadline.test.ts', 'a lock whose time runs out while it is being acquired is never returned']],
  },
  {
    number: 2,
    mistake: 'loss is signalled after the lease ended, or never while a command hangs',
    shownBy: [
      ['test/unit/keeper-deadline.test.ts', 'nobody looks: the timer at the deadline aborts, not later'],
      ['test/unit/keeper-deadline.test.ts', 'loss at the deadline comes also while every renewal fails'],
    ],
  },
  {
    number: 3,
    mistake: 'the lock says it is held while every renewal fails',
    shownBy: [
      ['test/unit/keeper-deadline.test.ts', 'loss at the deadline comes also while every renewal fails'],
      ['conformance/cases/stall.ts', 'after a stall the very first look tells the truth: held, remaining time, signal, assertion'],
    ],
  },
  {
    number: 4,
    mistake: 'renewal stops for good at the first passing error',
    shownBy: [
      ['test/unit/keeper-unknown.test.ts', 'neither extends nor ends the lease, and is tried again until the old deadline'],
      ['conformance/cases/unknown.ts', 'a renewal whose reply was lost is tried again, and the lease goes on'],
    ],
  },
  {
    number: 5,
    mistake: "clients' clocks decide what has expired",
    shownBy: [['test/unit/clock.test.ts', 'does not jump when somebody sets the clock forward']],
  },
  {
    number: 6,
    mistake: 'a holder is expired by the ttl of whoever asks, not by its own',
    shownBy: [['conformance/cases/expiry.ts', 'an entry lives by its own ttl, not by that of whoever asks next']],
  },
  {
    number: 7,
    mistake: 'the token is drawn after the lock and not with it',
    shownBy: [
      ['conformance/cases/order.ts', 'tokens ascend in the order of the line, also for those who still wait'],
      ['conformance/cases/tokens.ts', 'the token that a waiter is granted with is its own, and higher than that of the holder before it'],
    ],
  },
  {
    number: 8,
    mistake: 'tokens start again with the key, with a restart or after a release',
    shownBy: [
      [
        'conformance/cases/tokens.ts',
        'a token is higher than every earlier one of its key: after release, expiry and eviction, and when the line was empty',
      ],
      ['conformance/cases/tokens.ts', 'tokens go on when every client has gone and new ones come'],
    ],
  },
  {
    number: 9,
    mistake: "token check and write are two steps, or the holder's second write is refused",
    shownBy: [
      ['test/unit/guards.test.ts', 'let the same token act again, and a higher one replace it for good'],
      ['test/unit/guards-sqlite.test.ts', 'it refuses, whether the driver says so or not'],
      ['test/engines/guards.postgres.test.ts', 'whoever is replaced while waiting for the row is refused'],
      ['test/engines/guards.mysql.test.ts', 'whoever is replaced while waiting for the row is refused'],
    ],
  },
  {
    number: 10,
    mistake: 'success is reported without an attempt',
    shownBy: [['test/unit/acquire.test.ts', 'of 0 is one try, and a time-out when it is busy']],
  },
  {
    number: 11,
    mistake: 'after a takeover the old holder is still named',
    shownBy: [
      ['conformance/cases/expiry.ts', 'takeover: the release of the old holder changes nothing, that of the new one frees the line'],
      ['conformance/cases/crash.ts', 'a process that holds is killed: the next one holds, and nothing of the dead one remains'],
    ],
  },
  {
    number: 12,
    mistake: 'fewer than a majority of servers are enough',
    shownBy: [['test/engines/redis.durability.test.ts', 'fewer than a majority are refused, with the number that would do']],
  },
  {
    number: 13,
    mistake: 'one lock object used twice counts as one holder, so limits are ignored',
    shownBy: [
      ['conformance/cases/mutex.ts', 'never two holders at once, and no update is lost, however many ask'],
      ['conformance/cases/sharing.ts', 'a semaphore is never overdrawn and never left idle by many clients with many weights'],
    ],
  },
  {
    number: 14,
    mistake: 'validity is counted from the reply and not from the send',
    shownBy: [
      ['test/unit/keeper-deadline.test.ts', 'of the enter, however late its answer comes'],
      ['test/unit/keeper-deadline.test.ts', 'of the renewal, however late its answer comes'],
    ],
  },
  {
    number: 15,
    mistake: 'ids are weak',
    shownBy: [
      ['test/unit/clock.test.ts', 'does not rest on Math.random'],
      ['test/unit/clock.test.ts', 'gives ids of 128 bits in hexadecimal, no two alike'],
    ],
  },
  {
    number: 16,
    mistake: 'a lock looks free when the server is down',
    shownBy: [['test/unit/keeper-outage.test.ts', 'rejects at once when the engine is down: nobody is told that the lock is busy']],
  },
  {
    number: 17,
    mistake: 'a lock that expires without renewal is offered as a critical section',
    shownBy: [['conformance/cases/waiting.ts', 'renewals keep a lease, and a place in line, for longer than the ttl']],
  },
  {
    number: 18,
    mistake: 'the token grows on re-entry',
    shownBy: [
      ['test/unit/nesting.test.ts', 'the nested lease has the same token and takes no place in the line'],
      ['conformance/cases/tokens.ts', 'renewing and entering again do not change the token'],
    ],
  },
  { number: 19, mistake: 'two locks of one session both hold', notYet: NO_SESSION },
  { number: 20, mistake: 'a waiter wins after its own session has died', notYet: NO_SESSION },
  {
    number: 21,
    mistake: 'only writes are fenced, so a stale read corrupts',
    shownBy: [
      ['test/unit/guards.test.ts', 'refuse the write of whoever has been replaced by a reader'],
      ['test/unit/guards.test.ts', 'some do if only writes are fenced'],
    ],
  },
  // Liveness
  { number: 22, mistake: 'a split vote hangs for ever', notYet: NO_QUORUM },
  { number: 23, mistake: 'an attempt waits for keys of its own earlier attempt', notYet: NO_QUORUM },
  { number: 24, mistake: 'keys stay on servers whose reply was lost', notYet: NO_QUORUM },
  {
    number: 25,
    mistake: 'listening starts after the failed attempt, or ends for others too: a wake-up is lost',
    shownBy: [
      ['test/unit/keeper-answers.test.ts', 'the subscription stands before the first enter is sent'],
      ['conformance/cases/waiting.ts', 'a grant that is announced before the enter is answered is not lost'],
    ],
  },
  {
    number: 26,
    mistake: 'an expired entry is never taken over',
    shownBy: [
      ['conformance/cases/expiry.ts', 'who does not renew is gone, and the next in line holds'],
      ['conformance/cases/waiting.ts', 'an expiry wakes the next one, or lets it find out by itself'],
    ],
  },
  {
    number: 27,
    mistake: "takeover waits for the server's own slow sweep of expired data",
    notYet: 'no engine has a server with such a sweep yet',
  },
  {
    number: 28,
    mistake: "the release is skipped because the caller's signal is aborted",
    shownBy: [
      ['conformance/cases/cancelling.ts', 'a caller whose signal aborts during its work still releases'],
      ['test/unit/using.test.ts', 'comes also when the caller has aborted meanwhile'],
    ],
  },
  {
    number: 29,
    mistake: 'an acquire that timed out succeeds later and is never released',
    shownBy: [
      ['test/unit/keeper-unknown.test.ts', 'and arrives after all is left again as soon as it is heard of'],
      [
        'conformance/cases/unknown.ts',
        'an enter that arrives after it was given up, and says nothing, is taken out of the line before it expires',
      ],
    ],
  },
  {
    number: 30,
    mistake: 'a dead waiter stalls the line',
    shownBy: [
      ['conformance/cases/crash.ts', 'a waiter that dies in line does not hold up those behind it for longer than its ttl'],
      ['conformance/cases/expiry.ts', 'several dead waiters of one age delay the line by one ttl, not by one each'],
    ],
  },
  {
    number: 31,
    mistake: 'the work is aborted at the first failed renewal although much of the lease is left',
    shownBy: [['test/unit/keeper-unknown.test.ts', 'neither extends nor ends the lease, and is tried again until the old deadline']],
  },
  {
    number: 32,
    mistake: 'a renewal outlives the release',
    shownBy: [
      ['test/unit/keeper-close.test.ts', 'stops renewals: none is sent after it, not even one that was asked for before'],
      ['conformance/cases/expiry.ts', 'a renewal never outlives a release, also when both are on their way at once'],
    ],
  },
  {
    number: 33,
    mistake: 'taking several keys deadlocks or leaks',
    shownBy: [
      ['test/unit/all.test.ts', 'many tasks that take random sets in random order never deadlock, and never overlap'],
      ['conformance/cases/together.ts', 'losing one part while waiting for the next gives back everything'],
    ],
  },
  // Processes
  {
    number: 34,
    mistake: 'background work leaves unhandled rejections, or a missing error listener crashes the process',
    shownBy: [
      ['test/unit/process.test.ts', 'work in the background never makes an unhandled rejection'],
      ['conformance/cases/leftovers.ts', 'no rejection went unhandled, in any process, in all of this'],
    ],
  },
  {
    number: 35,
    mistake: 'a small ttl makes a hot loop',
    shownBy: [['test/unit/heartbeat.test.ts', 'are tried again after a pause that is short against the ttl, and never a hot loop']],
  },
  {
    number: 36,
    mistake: 'timers keep a process alive, or are armed again after the end',
    shownBy: [
      ['test/unit/process.test.ts', 'that only holds ends, though nobody has released'],
      ['test/unit/keeper-close.test.ts', 'leaves no timer and nobody who keeps the process alive, also with calls on their way'],
    ],
  },
  {
    number: 37,
    mistake: 'waiters poll in step, without jitter',
    shownBy: [
      ['conformance/cases/waiting.ts', 'a release wakes the next one: nobody waits for a poll'],
      ['test/unit/heartbeat.test.ts', 'are tried again after a pause that is short against the ttl, and never a hot loop'],
    ],
  },
  {
    number: 38,
    mistake: 'an error of the release masks the result, or a release happens twice',
    shownBy: [
      ['test/unit/using.test.ts', 'that fails does not mask the result'],
      ['test/unit/using.test.ts', 'that fails does not mask the error'],
      ['conformance/cases/mutex.ts', 'releasing twice is releasing once'],
    ],
  },
  {
    number: 39,
    mistake: 'every waiter takes a connection, until the pool deadlocks; session locks go through a pooler',
    shownBy: [
      ['test/engines/redis.clients.test.ts', 'a hundred waiters share its connections, and nothing is defined on it'],
      ['test/engines/postgres.server.test.ts', 'a pool of one connection is enough, for holders, waiters and renewals'],
      ['test/engines/postgres.pooler.test.ts', 'a waiter looks often enough, though nobody can tell it anything'],
    ],
  },
  {
    number: 40,
    mistake: "commands are defined on the user's client under common names",
    shownBy: [['test/engines/redis.clients.test.ts', 'a hundred waiters share its connections, and nothing is defined on it']],
  },
  {
    number: 41,
    mistake: 'keys without bound are left behind',
    shownBy: [
      ['conformance/cases/leftovers.ts', 'the server stores nothing for lines in which nobody is'],
      ['conformance/cases/leftovers.ts', 'the server stores nothing for processes that were killed'],
    ],
  },
  {
    number: 42,
    mistake: 'ordinary contention is emitted as an error',
    shownBy: [['test/unit/diagnostics.test.ts', 'says why: busy, timeout, cancelled or error']],
  },
  {
    number: 43,
    mistake: 'scripts compare numbers as strings, or the reverse',
    shownBy: [['test/engines/redis.differential.test.ts', 'answers as memory does, three clients, seed %i']],
  },
  {
    number: 44,
    mistake: "installing the package touches the user's home",
    shownBy: [['test/tidy.test.ts', 'nothing runs when the package is installed']],
  },
]
