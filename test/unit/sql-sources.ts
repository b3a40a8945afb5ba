/** That what is published is made from the SQL files of an engine as they are. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect } from 'vitest'

interface Generator {
  readonly ENGINES: Readonly<Record<string, Readonly<Record<'files' | 'parts', readonly string[]>>>>
  generate(engine: string): string
}

/** Every file of its folder is used, too. */
export async function expectFreshSources(engine: 'mysql' | 'postgres'): Promise<void> {
  const { ENGINES, generate } = (await import('../../scripts/sql.mjs' as string)) as Generator
  expect(readFileSync(`src/engines/${engine}/sources.ts`, 'utf8')).toBe(generate(engine))
  const files = readdirSync(`src/engines/${engine}/sql`).map((file) => file.replace('.sql', ''))
  const used = Object.values(ENGINES[engine] ?? {}).flat()
  expect(files.toSorted()).toEqual(used.toSorted())
}
