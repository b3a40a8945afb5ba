/**
 * A suite that needs a real server. Without one it is skipped, with the reason and the remedy in the report, counted; under CI it fails, since a green run
 * that tested nothing is a lie.
 */
import { describe, test } from 'vitest'
import { Missing } from './programs.ts'

export async function describeServer<Source extends object>(
  name: string,
  find: () => Promise<Source | Missing>,
  body: (source: Source) => void,
): Promise<void> {
  const source = await find()
  if (!(source instanceof Missing)) {
    describe(name, () => body(source))
    return
  }
  test(name, (context) => {
    if (process.env.CI) throw new Error(source.reason)
    context.skip(source.reason)
  })
}
