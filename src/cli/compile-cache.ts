/**
 * Where what was compiled is kept for the next process: `holdfast` is started again and again, by shells and cron, and
 * compiling is a good part of what its start takes. start.ts keeps our own code there. Node itself keeps that of
 * packages, from 22.8 on.
 */
import { statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'

/**
 * Below the user's own home; undefined without one. Node's default, a folder in the temporary one, may have been made
 * by another user of this host, and what is in it is executed. For the same reason, root does not use the home of the
 * user who has called sudo.
 */
export function compileCacheFolder(): string | undefined {
  try {
    const home = homedir()
    if (statSync(home).uid !== process.getuid?.()) return undefined
    return join(process.env.XDG_CACHE_HOME || join(home, '.cache'), 'holdfast')
  } catch {
    // Without a home: then it is compiled anew.
    return undefined
  }
}

/** Of newer Nodes than the one whose types we compile with. It fails without throwing. */
interface ModuleOfNode {
  enableCompileCache?(folder: string): unknown
}

/** Let Node keep what it compiles from now on. */
export function enableCompileCache(): void {
  const { enableCompileCache: enable } = process.getBuiltinModule('node:module') as ModuleOfNode
  const folder = enable === undefined ? undefined : compileCacheFolder()
  if (folder !== undefined) enable?.(folder)
}
