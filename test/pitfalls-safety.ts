/** The first part of the table in pitfalls.ts: mistakes that let two in at once, or take back what was promised. */
import type { Pitfall } from './pitfalls.ts'

export const safety: readonly Pitfall[] = [
  {
    number: 1,
    mistake: 'a lock is returned although its time ran out while it was acquired',
    shownBy: [
      ['test/unit/keeper-deadline.test.ts', 'a lock whose time runs out while it is being acquired is never returned'],
    ],
  },
  {
    number: 2,
    mistake: 'loss is signalled after the lease ended, or never while a command hangs',
    shownBy: [
      ['test/unit/keeper-deadline.test.ts', 'without a look, the timer at the deadline aborts, not later'],
      ['test/unit/keeper-deadline.test.ts', 'loss at the deadline comes also while every renewal fails'],
    ],
  },
  {
    number: 3,
    mistake: 'the lock says it is held while every renewal fails',
    shownBy: [
      ['test/unit/keeper-deadline.test.ts', 'loss at the deadline comes also while every renewal fails'],
      [
        'conformance/cases/stall.ts',
        'after a stall the very first look tells the truth: held, remaining time, signal, assertion',
      ],
    ],
  },
  {
    number: 4,
    mistake: 'renewal stops for good at the first passing error',
    shownBy: [
      [
        'test/unit/keeper-unknown.test.ts',
        'neither extends nor ends the lease, and is tried again until the old deadline',
      ],
      ['conformance/cases/unknown.ts', 'a renewal whose reply was lost is tried again, and the lease goes on'],
    ],
  },
  {
    number: 5,
    mistake: "clients' clocks decide what has expired",
    shownBy: [['test/unit/clock.test.ts', 'does not jump when the clock is set forward']],
  },
  {
    number: 6,
    mistake: 'a holder is expired by the ttl of the caller that asks, not by its own',
    shownBy: [['conformance/cases/expiry.ts', 'an entry lives by its own ttl, not by that of the next one in line']],
  },
  {
    number: 7,
    mistake: 'the token is drawn after the lock and not with it',
    shownBy: [
      ['conformance/cases/order.ts', 'tokens ascend in the order of the line, also for entries that still wait'],
      [
        'conformance/cases/tokens.ts',
        'the token that a waiter is granted with is its own, and higher than that of the holder before it',
      ],
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
      [
        'test/engines/mysql.differential.test.ts',
        'tokens go on rising when the clock is set back, also when the rows of their lines have been removed',
      ],
    ],
  },
  {
    number: 9,
    mistake: "token check and write are two steps, or the holder's second write is refused",
    shownBy: [
      ['test/unit/guards.test.ts', 'let the same token act again, and a higher one replace it for good'],
      ['test/unit/guards-sqlite.test.ts', 'it refuses, whether the driver says so or not'],
      ['test/engines/guards.postgres.test.ts', 'a writer that is replaced while waiting for the row is refused'],
      ['test/engines/guards.mysql.test.ts', 'a writer that is replaced while waiting for the row is refused'],
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
      [
        'conformance/cases/expiry.ts',
        'takeover: the release of the old holder changes nothing, that of the new one frees the line',
      ],
      [
        'conformance/cases/crash.ts',
        'a process that holds is killed: the next one holds, and nothing of the dead one remains',
      ],
    ],
  },
  {
    number: 12,
    mistake: 'fewer than a majority of servers are enough',
    shownBy: [
      ['test/engines/redis.durability.test.ts', 'fewer than a majority are refused, with the number that would do'],
    ],
  },
  {
    number: 13,
    mistake: 'one lock object used twice counts as one holder, so limits are ignored',
    shownBy: [
      ['conformance/cases/mutex.ts', 'never two holders at once, and no update is lost, however many ask'],
      [
        'conformance/cases/sharing.ts',
        'a semaphore is never overdrawn and never left idle by many clients with many weights',
      ],
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
    shownBy: [
      [
        'test/unit/keeper-outage.test.ts',
        'rejects at once when the engine is down: no caller is told that the lock is busy',
      ],
    ],
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
  {
    number: 19,
    mistake: 'two locks of one session both hold',
    shownBy: [['test/engines/etcd.server.test.ts', 'two of one process, under one lease, do not both hold']],
  },
  {
    number: 20,
    mistake: 'a waiter wins after its own session has died',
    shownBy: [
      [
        'test/engines/etcd.server.test.ts',
        'a waiter whose lease has ended does not win with it, and comes back at the back of the line',
      ],
    ],
  },
  {
    number: 21,
    mistake: 'only writes are guarded, so a stale read corrupts',
    shownBy: [
      ['test/unit/guards.test.ts', 'refuse the write of a holder that has been replaced by a reader'],
      ['test/unit/guards.test.ts', 'some do if only writes are guarded'],
    ],
  },
]
