/** The memory engine conforms. Its lines live in one process, so the cases with processes of their own do not apply. */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'

conformance({ describe, it, afterAll }, 'memory', (): World => {
  const server = new MemoryServer()
  return {
    engine: () => memory({ server }),
    leftovers: () => Array.from({ length: server.size }, (_, index) => `line ${index}`),
    lacks: {
      actor: 'its lines live in one process',
      restart: 'its server is the process itself',
    },
  }
})
