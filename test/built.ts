/**
 * Compiled modules, for the processes that tests start: vitest compiles for itself only. `npm test` builds first; a
 * developer who runs one test file alone is told when what was built is missing or older than its source, instead of
 * trying yesterday's code.
 */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

/** The path of `holdfast` itself, as users run it. */
export function builtCommand(): string {
  builtModule('src/cli/main.ts')
  const made = join('dist', 'bundle', 'cli', 'holdfast.cjs')
  if (!existsSync(made)) throw new Error(`${made} is missing: run \`npm run build\` first`)
  return resolve(made)
}

/** The URL of what `source` was compiled to. */
export function builtModule(source: string): string {
  for (const folder of ['src', 'conformance']) {
    for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      if (file.endsWith('.ts')) refuseStale(join(folder, file))
    }
  }
  return pathToFileURL(compiled(source)).href
}

function compiled(source: string): string {
  return join('dist', source.replace(/\.ts$/, '.js'))
}

function refuseStale(source: string): void {
  const made = compiled(source)
  if (!existsSync(made)) throw new Error(`${made} is missing: run \`npm run build\` first`)
  if (statSync(made).mtimeMs < statSync(source).mtimeMs)
    throw new Error(`${made} is older than its source: run \`npm run build\` first`)
}
