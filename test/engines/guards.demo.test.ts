/**
 * `npm run demo:fencing`, run as it is: real processes, one of them stopped past its lease. The corruption without a
 * guard, and the refusal with one, are there to be read.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { builtModule } from '../built.ts'

test('the demonstration shows a lost deposit without a guard, and a refused one with it', async () => {
  builtModule('src/index.ts')
  const child = spawn(process.execPath, ['examples/fencing.mjs'], { stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  child.stdout.on('data', (bytes: Buffer) => {
    said += bytes.toString()
  })
  expect(await once(child, 'close')).toEqual([0, null])
  const [bare = '', guarded = ''] = said.split('With a guard')
  for (const act of [bare, guarded]) {
    const order = ['holds the lock', 'reads the balance: 100', 'SIGSTOP', 'writes 150', 'SIGCONT'].map((part) =>
      act.indexOf(part),
    )
    expect(order).toEqual(order.toSorted((a, b) => a - b))
    expect(order).not.toContain(-1)
  }
  expect(bare).toContain('writes 110, its lease long over')
  expect(bare).toContain('50 are lost')
  expect(guarded).toMatch(/is refused: \d+ < \d+/)
  expect(guarded).toContain('balance 150')
})
