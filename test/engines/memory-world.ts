/** The world of the conformance cases on the memory engine: its lines live in one process. */
import type { World } from '../../conformance/index.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'

export function memoryWorld(): World {
  const server = new MemoryServer()
  return {
    engine: () => memory({ server }),
    leftovers: () => Array.from({ length: server.size }, (_, index) => `line ${index}`),
    lacks: {
      actor: 'its lines live in one process',
      restart: 'its server is the process itself',
    },
  }
}
