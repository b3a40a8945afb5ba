/** Whether a member of etcd lives: one that says nothing does not; one whose answer we had no time to read does. */
import { expect, test, vi } from 'vitest'
import { GRPC_STATUS, RpcError } from '../../src/clients/etcd/errors.ts'
import { LivenessCheck } from '../../src/clients/etcd/liveness.ts'
import { fakeClock } from '../../src/testing.ts'

function checked(): {
  readonly clock: ReturnType<typeof fakeClock>
  readonly dead: () => void
  readonly pongs: (() => void)[]
  liveness: LivenessCheck
} {
  const clock = fakeClock()
  const dead = vi.fn()
  const pongs: (() => void)[] = []
  const liveness = new LivenessCheck(clock, { expects: () => 'calls', ping: (pong) => void pongs.push(pong), dead })
  liveness.begin()
  liveness.watch()
  return { clock, dead, pongs, liveness }
}

test('one that gives no sign of life is dead', async () => {
  const { clock, dead, pongs } = checked()
  await clock.advance(2_000)
  expect(pongs).toHaveLength(1)
  expect(dead).toHaveBeenCalledTimes(1)
})

test('one whose sign of life lay unread while we were busy is not', async () => {
  const { clock, dead, pongs } = checked()
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
  const { clock, dead, liveness } = checked()
  await clock.advance(500)
  liveness.answered()
  await clock.advance(900)
  expect(dead).not.toHaveBeenCalled()
})

test('what could not be stored for want of space may have been; what was too much was not done', () => {
  expect(new RpcError(8, 'etcdserver: mvcc: database space exceeded').refused).toBe(false)
  expect(new RpcError(8, 'etcdserver: too many requests').refused).toBe(true)
})

test('a token that is older than users and roles is not bad for good; to have no right, or no user, is', () => {
  for (const message of ['etcdserver: invalid auth token', 'etcdserver: revision of auth store is old']) {
    expect(new RpcError(GRPC_STATUS.unauthenticated, message)).toMatchObject({
      lasting: false,
      tokenRejected: true,
      refused: true,
    })
    expect(new RpcError(GRPC_STATUS.invalidArgument, message)).toMatchObject({
      lasting: false,
      tokenRejected: true,
      refused: true,
    })
  }
  expect(new RpcError(GRPC_STATUS.invalidArgument, 'etcdserver: user name is empty')).toMatchObject({
    lasting: true,
    tokenRejected: true,
  })
  expect(new RpcError(GRPC_STATUS.permissionDenied, 'etcdserver: permission denied')).toMatchObject({
    lasting: true,
    tokenRejected: false,
  })
})
