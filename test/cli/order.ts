/** What `holdfast run` does on every server that processes share. */
import { expect } from 'vitest'
import { eventually, type World } from './holdfast.ts'

/** One holds; one that does not wait is refused; one that waits has it next, with a higher token. */
export async function servedInOrder(world: World, url: string): Promise<void> {
  const first = world.start(['run', 'job', '--url', url, '--', 'sh', '-c', 'echo $HOLDFAST_TOKEN; sleep 60'])
  await eventually('a token', async () => /^\d+\n$/.test(first.stdout))
  expect(await world.run('run', 'job', '-n', '--url', url, '--', 'true')).toMatchObject({ exit: 75 })
  const next = world.start(['run', 'job', '--url', url, '--', 'sh', '-c', 'echo $HOLDFAST_TOKEN'])
  await eventually('a waiter', async () => (await world.run('ls', '--url', url)).stdout.includes('1     1        job'))
  first.process.kill('SIGTERM')
  const { stdout } = await next.ended
  expect(BigInt(stdout.trim())).toBeGreaterThan(BigInt(first.stdout.trim()))
}
