/** The memory engine conforms. Its lines live in one process, so the cases with processes of their own do not apply. */
import { afterAll, describe, it } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { memoryWorld } from './memory-world.ts'

conformance({ describe, it, afterAll }, 'memory', memoryWorld)
