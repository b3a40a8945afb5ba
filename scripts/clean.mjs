/** Removes what was built before: a file that has moved would stay in dist/, be imported by mistake, and published. */
import { rmSync } from 'node:fs'

rmSync('dist', { recursive: true, force: true })
