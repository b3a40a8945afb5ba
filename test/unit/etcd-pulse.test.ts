/** Whether a member of etcd lives: one that says nothing does not; one whose answer we had no time to read does. */
import { expect, test, vi } from 'vitest'
import { Pulse } from '../../src/clients/etcd/pulse.ts'
import { RpcError, STATUS } from '../../src/clients/etcd/rpc-error.ts'
import { fakeClock } from '../../src/testing.ts'

function patient(): {
  readonly clock: ReturnType<typeof fakeClock>
  readonly dead: () => void
  readonly pongs: (() => void)[]
  pulse: Pulse
} {
  const clock = fakeClock()
  const dead = vi.fn()
  const pongs: (() => void)[] = []
  const pulse = new Pulse(clock, { expects: () => 'calls', ping: (pong) => void pongs.push(pong), dead })
  pulse.begin()
  pulse.watch()
  return { clock, dead, pongs, pulse }
}

test('one that gives no sign of life is dead', async () => {
  const { clock, dead, pongs } = patient()
  await clock.advance(2_000)
  expect(pongs).toHaveLength(1)
  expect(dead).toHaveBeenCalledTimes(1)
})

test('one whose sign of life lay unread while we were busy is not', async () => {
  const { clock, dead, pongs } = patient()
  await clock.advance(500)
  expect(pongs).toHaveLength(1)
  clock.stall(2_000)
  await clock.advance(0)
  // Timers come before what is read.
  pongs[0]?.()
  await clock.advance(100)
  expect(dead).not.toHaveBeenCalled()
})

test('an answer is a sign of life', async () => {
  const { clock, dead, pulse } = patient()
  await clock.advance(500)
  pulse.answered()
  await clock.advance(900)
  expect(dead).not.toHaveBeenCalled()
})

test('what could not be stored for want of space may have been; what was too much was not done', () => {
  expect(new RpcError(8, 'etcdserver: mvcc: database space exceeded').refused).toBe(false)
  expect(new RpcError(8, 'etcdserver: too many requests').refused).toBe(true)
})

test('a token that is older than users and roles is not bad for good; to have no right, or no user, is', () => {
  for (const message of ['etcdserver: invalid auth token', 'etcdserver: revision of auth store is old']) {
    expect(new RpcError(STATUS.unauthenticated, message)).toMatchObject({
      lasting: false,
      tokenRejected: true,
      refused: true,
    })
    expect(new RpcError(STATUS.invalidArgument, message)).toMatchObject({
      lasting: false,
      tokenRejected: true,
      refused: true,
    })
  }
  expect(new RpcError(STATUS.invalidArgument, 'etcdserver: user name is empty')).toMatchObject({
    lasting: true,
    tokenRejected: true,
  })
  expect(new RpcError(STATUS.permissionDenied, 'etcdserver: permission denied')).toMatchObject({
    lasting: true,
    tokenRejected: false,
  })
})
