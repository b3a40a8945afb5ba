/** SQLite conforms, with clients in this process and in processes of their own. */
import { afterAll, describe, it } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { sqliteFileWorld } from './sqlite-file-world.ts'

conformance({ describe, it, afterAll }, 'sqlite', sqliteFileWorld)
