/**
 * Node can keep what it has compiled for the next process, from 22.8 on. `holdfast` is started again and again, by
 * shells and cron, and compiling is a good part of what its start takes.
 */
import { statSync } from 'node:fs'
import * as module from 'node:module'
import { homedir } from 'node:os'
import { join } from 'node:path'

/** Of newer Nodes than the one whose types we compile with. It fails without throwing. */
type EnableCompileCache = (folder: string) => unknown

/**
 * Keep it below the user's own home. Node's default, a folder in the temporary one, may have been made by another user
 * of this host, and what is in it is executed. For the same reason, root does not use the home of the user who has
 * called sudo.
 */
export function enableCompileCache(): void {
  const { enableCompileCache: enable } = module as { readonly enableCompileCache?: EnableCompileCache }
  if (enable === undefined) return
  try {
    const home = homedir()
    if (statSync(home).uid !== process.getuid?.()) return
    enable(join(process.env.XDG_CACHE_HOME || join(home, '.cache'), 'holdfast'))
  } catch {
    // Without a home: then it is compiled anew.
  }
}
