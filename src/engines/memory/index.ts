/**
 * `holdfast/memory`: lines in the memory of one process, for tests and as the reference that every other engine is
 * compared with. Read line.ts, then engine.ts.
 */
export { type MemoryOptions, MemoryServer, memory } from './engine.ts'
