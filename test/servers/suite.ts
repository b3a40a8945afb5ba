/**
 * A suite that needs a real server. Without one it is skipped, with the reason and the remedy in the report, counted;
 * under CI it fails, since a green run that tested nothing is a lie. `Missing` says for which server alone it does not.
 */
import { describe, type TestContext, test } from 'vitest'
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
  test(name, (context) => void present(source, context))
}

/** For one test of a suite that needs a further program: what was found. */
export function present<Found extends object>(found: Found | Missing, context: TestContext): Found {
  if (!(found instanceof Missing)) return found
  if (process.env.CI && !found.skipsUnderCi) throw new Error(found.reason)
  return context.skip(found.reason)
}
