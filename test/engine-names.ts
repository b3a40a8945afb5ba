/**
 * The names of all engines: those of their folders. Tests that have a row for each engine compare their rows with
 * these, so that a new engine is forgotten in none of them.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'

export const ENGINE_NAMES: readonly string[] = readdirSync(join('src', 'engines')).filter((name) => name !== 'shared')
