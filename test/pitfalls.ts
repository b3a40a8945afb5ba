/**
 * Forty-four mistakes that existing lock libraries make, and where it is shown that we do not. Each was read in a
 * public library's source or seen by running it.
 *
 * A row names tests, by file and exact name, or says why it cannot apply yet. pitfalls.test.ts checks that the tests
 * are there.
 */
import { safety } from './pitfalls-safety.ts'

export interface Pitfall {
  readonly number: number
  readonly mistake: string
  /** File and name of tests, or of conformance cases. */
  readonly shownBy?: readonly (readonly [file: string, name: string])[]
  /** Why there is nothing to show yet. */
  readonly notYet?: string
}

export const pitfalls: readonly Pitfall[] = [
  ...safety,
  // Liveness
  {
    number: 22,
    mistake: 'a split vote hangs for ever',
    shownBy: [
      ['test/unit/redlock-quorum.test.ts', 'several that try at the same moment do not hang, and one of them gets it'],
    ],
  },
  {
    number: 23,
    mistake: 'an attempt waits for keys of its own earlier attempt',
    shownBy: [
      [
        'test/unit/redlock-quorum.test.ts',
        'a key of an earlier attempt, whose answer was lost, is ours, and lives for a whole ttl again before it counts',
      ],
    ],
  },
  {
    number: 24,
    mistake: 'keys stay on servers whose reply was lost',
    shownBy: [['test/unit/redlock-quorum.test.ts', 'what was taken where no answer came is given back there too']],
  },
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
    shownBy: [
      ['test/unit/mongodb-pipelines.test.ts', 'is had as soon as its holder has expired, whatever the TTL index does'],
      ['conformance/cases/expiry.ts', 'who does not renew is gone, and the next in line holds'],
    ],
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
      [
        'conformance/cases/crash.ts',
        'a waiter that dies in line does not hold up those behind it for longer than its ttl',
      ],
      ['conformance/cases/expiry.ts', 'several dead waiters of one age delay the line by one ttl, not by one each'],
    ],
  },
  {
    number: 31,
    mistake: 'the work is aborted at the first failed renewal although much of the lease is left',
    shownBy: [
      [
        'test/unit/keeper-unknown.test.ts',
        'neither extends nor ends the lease, and is tried again until the old deadline',
      ],
    ],
  },
  {
    number: 32,
    mistake: 'a renewal outlives the release',
    shownBy: [
      [
        'test/unit/keeper-release.test.ts',
        'stops renewals: none is sent after it, not even one that was asked for before',
      ],
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
    shownBy: [
      [
        'test/unit/timer-queue.test.ts',
        'are tried again after a pause that is short against the ttl, and never a hot loop',
      ],
    ],
  },
  {
    number: 36,
    mistake: 'timers keep a process alive, or are armed again after the end',
    shownBy: [
      ['test/unit/process.test.ts', 'that only holds ends, though it has not released'],
      [
        'test/unit/keeper-close.test.ts',
        'leaves no timer and nothing that keeps the process alive, also with calls on their way',
      ],
    ],
  },
  {
    number: 37,
    mistake: 'waiters poll in step, without jitter',
    shownBy: [
      ['conformance/cases/waiting.ts', 'a release wakes the next waiter: no waiter waits for a poll'],
      [
        'test/unit/timer-queue.test.ts',
        'are tried again after a pause that is short against the ttl, and never a hot loop',
      ],
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
      ['test/engines/sql-server.ts', 'a pool of one connection is enough, for holders, waiters and renewals'],
      ['test/engines/postgres.pooler.test.ts', 'a waiter looks often enough, though it cannot be told anything'],
      [
        'test/engines/mysql.server.test.ts',
        'a hundred who wait have one connection more between them, and are renewed together',
      ],
    ],
  },
  {
    number: 40,
    mistake: "commands are defined on the user's client under common names",
    shownBy: [
      ['test/engines/redis.clients.test.ts', 'a hundred waiters share its connections, and nothing is defined on it'],
    ],
  },
  {
    number: 41,
    mistake: 'keys without bound are left behind',
    shownBy: [
      ['conformance/cases/leftovers.ts', 'the server stores nothing for lines without entries'],
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
    shownBy: [
      ['test/engines/redis.differential.test.ts', 'answers as memory does, three clients, seed %i'],
      ['test/engines/mysql.differential.test.ts', 'answers as memory does, three clients, seed %i'],
    ],
  },
  {
    number: 44,
    mistake: "installing the package touches the user's home",
    shownBy: [['test/tidy.test.ts', 'nothing runs when the package is installed']],
  },
]
