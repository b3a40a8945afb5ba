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

const NOT_NAMED = 'no test is named here yet'
const NO_GUARD = 'there is no guard yet'
const NO_QUORUM = 'no engine asks several servers for votes yet'
const NO_SESSION = 'no engine has sessions yet'
const NO_CLIENT = 'no engine uses a client library or a connection pool yet'

export const pitfalls: readonly Pitfall[] = [
  // Safety
  { number: 1, mistake: 'a lock is returned although its time ran out while it was acquired', notYet: NOT_NAMED },
  { number: 2, mistake: 'loss is signalled after the lease ended, or never while a command hangs', notYet: NOT_NAMED },
  { number: 3, mistake: 'the lock says it is held while every renewal fails', notYet: NOT_NAMED },
  { number: 4, mistake: 'renewal stops for good at the first passing error', notYet: NOT_NAMED },
  { number: 5, mistake: "clients' clocks decide what has expired", notYet: NOT_NAMED },
  { number: 6, mistake: 'a holder is expired by the ttl of whoever asks, not by its own', notYet: NOT_NAMED },
  { number: 7, mistake: 'the token is drawn after the lock and not with it', notYet: NOT_NAMED },
  { number: 8, mistake: 'tokens start again with the key, with a restart or after a release', notYet: NOT_NAMED },
  { number: 9, mistake: "token check and write are two steps, or the holder's second write is refused", notYet: NO_GUARD },
  { number: 10, mistake: 'success is reported without an attempt', notYet: NOT_NAMED },
  { number: 11, mistake: 'after a takeover the old holder is still named', notYet: NOT_NAMED },
  { number: 12, mistake: 'fewer than a majority of servers are enough', notYet: NO_QUORUM },
  { number: 13, mistake: 'one lock object used twice counts as one holder, so limits are ignored', notYet: NOT_NAMED },
  { number: 14, mistake: 'validity is counted from the reply and not from the send', notYet: NOT_NAMED },
  { number: 15, mistake: 'ids are weak', notYet: NOT_NAMED },
  { number: 16, mistake: 'a lock looks free when the server is down', notYet: NOT_NAMED },
  { number: 17, mistake: 'a lock that expires without renewal is offered as a critical section', notYet: NOT_NAMED },
  { number: 18, mistake: 'the token grows on re-entry', notYet: NOT_NAMED },
  { number: 19, mistake: 'two locks of one session both hold', notYet: NO_SESSION },
  { number: 20, mistake: 'a waiter wins after its own session has died', notYet: NO_SESSION },
  { number: 21, mistake: 'only writes are fenced, so a stale read corrupts', notYet: NO_GUARD },
  // Liveness
  { number: 22, mistake: 'a split vote hangs for ever', notYet: NO_QUORUM },
  { number: 23, mistake: 'an attempt waits for keys of its own earlier attempt', notYet: NO_QUORUM },
  { number: 24, mistake: 'keys stay on servers whose reply was lost', notYet: NO_QUORUM },
  { number: 25, mistake: 'listening starts after the failed attempt, or ends for others too: a wake-up is lost', notYet: NOT_NAMED },
  { number: 26, mistake: 'an expired entry is never taken over', notYet: NOT_NAMED },
  {
    number: 27,
    mistake: "takeover waits for the server's own slow sweep of expired data",
    notYet: 'no engine has a server with such a sweep yet',
  },
  { number: 28, mistake: "the release is skipped because the caller's signal is aborted", notYet: NOT_NAMED },
  { number: 29, mistake: 'an acquire that timed out succeeds later and is never released', notYet: NOT_NAMED },
  { number: 30, mistake: 'a dead waiter stalls the line', notYet: NOT_NAMED },
  { number: 31, mistake: 'the work is aborted at the first failed renewal although much of the lease is left', notYet: NOT_NAMED },
  { number: 32, mistake: 'a renewal outlives the release', notYet: NOT_NAMED },
  { number: 33, mistake: 'taking several keys deadlocks or leaks', notYet: NOT_NAMED },
  // Processes
  {
    number: 34,
    mistake: 'background work leaves unhandled rejections, or a missing error listener crashes the process',
    notYet: NOT_NAMED,
  },
  { number: 35, mistake: 'a small ttl makes a hot loop', notYet: NOT_NAMED },
  { number: 36, mistake: 'timers keep a process alive, or are armed again after the end', notYet: NOT_NAMED },
  { number: 37, mistake: 'waiters poll in step, without jitter', notYet: NOT_NAMED },
  { number: 38, mistake: 'an error of the release masks the result, or a release happens twice', notYet: NOT_NAMED },
  {
    number: 39,
    mistake: 'every waiter takes a connection, until the pool deadlocks; session locks go through a pooler',
    notYet: NO_CLIENT,
  },
  { number: 40, mistake: "commands are defined on the user's client under common names", notYet: NO_CLIENT },
  { number: 41, mistake: 'keys without bound are left behind', notYet: NOT_NAMED },
  { number: 42, mistake: 'ordinary contention is emitted as an error', notYet: NOT_NAMED },
  { number: 43, mistake: 'scripts compare numbers as strings, or the reverse', notYet: 'no engine has scripts yet' },
  {
    number: 44,
    mistake: "installing the package touches the user's home",
    shownBy: [['test/tidy.test.ts', 'nothing runs when the package is installed']],
  },
]
