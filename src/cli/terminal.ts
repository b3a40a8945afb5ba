/** What our controlling terminal has to do with us. Node does not tell, the kernel does. */
import { execFileSync } from 'node:child_process'
import { closeSync, constants, openSync, readFileSync } from 'node:fs'

/** Whether there is a controlling terminal, and it has not hung up. */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', constants.O_RDWR | constants.O_NOCTTY))
    return true
  } catch {
    return false
  }
}

/** Whether keys like Ctrl-C go to our process group now. */
export function inForeground(): boolean {
  const [group, foreground] = process.platform === 'linux' ? groupsFromProc() : groupsFromPs()
  return group !== undefined && group === foreground
}

/** proc(5): after the name in parentheses come state, parent, group, session, terminal, foreground group. */
function groupsFromProc(): [string | undefined, string | undefined] {
  const stat = readFileSync('/proc/self/stat', 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return [fields[2], fields[5]]
}

function groupsFromPs(): [string | undefined, string | undefined] {
  const text = execFileSync('ps', ['-o', 'pgid=', '-o', 'tpgid=', '-p', String(process.pid)], { encoding: 'utf8' })
  const [group, foreground] = text.trim().split(/\s+/)
  return [group, foreground]
}
