/**
 * Who a process is, and whether it is dead.
 *
 * A pid alone is not a name: it is recycled, and containers of one host all have a pid 1. So a process is named by the
 * machine's run (boot id), its pid namespace, its pid and its start time. Death is judged only where the first two are
 * ours; the entries of any other process live until their ttl is over. Doubt always means alive.
 */
import { readdirSync } from 'node:fs'
import { linkOf, readProc, sessionOf } from '../../clients/sqlite/host.ts'

/** As stored in the file. Nulls: the entries do not end with a process, or its death could not be judged. */
export interface ProcessName {
  /** Boot id, pid namespace and time namespace: in the last one, because start times are told relative to it. */
  readonly realm: string | null
  readonly pid: number | null
  /** Start time in clock ticks since boot; null where /proc does not tell. */
  readonly born: string | null
}

const WITHOUT_PROCESS: ProcessName = { realm: null, pid: null, born: null }

/** For entries that no death of a process ends. */
export function withoutProcess(): ProcessName {
  return WITHOUT_PROCESS
}

let own: ProcessName | undefined

export function ownProcess(): ProcessName {
  own ??= { realm: realmOf(), pid: process.pid, born: statOf(process.pid)?.born ?? null }
  return own
}

function realmOf(): string | null {
  const session = sessionOf()
  if (session === undefined || session === '') return null
  if (process.platform !== 'linux') return session
  const pidNamespace = linkOf('/proc/self/ns/pid')
  // Kernels before 5.6 have no time namespaces, hence one for all.
  return pidNamespace === undefined ? null : `${session} ${pidNamespace} ${linkOf('/proc/self/ns/time') ?? ''}`
}

/** Whether that process, and every process group that was to live as long, is surely dead. */
export function isDead(name: ProcessName, groups: readonly number[]): boolean {
  const { realm } = ownProcess()
  if (name.pid === null || realm === null || name.realm !== realm) return false
  return isProcessDead(name.pid, name.born) && !groups.some(isGroupAlive)
}

function isProcessDead(pid: number, born: string | null): boolean {
  if (!answersSignals(pid)) return true
  const stat = born === null ? undefined : statOf(pid)
  if (stat === undefined) return false
  return stat.born !== born || hasEnded(stat)
}

/**
 * A zombie will never run again, once its other threads are gone as well: one of them might still be inside a write.
 */
function hasEnded(stat: Stat): boolean {
  return (stat.state === 'Z' || stat.state === 'X') && stat.threads <= 1
}

/**
 * Zombies answer signals, too, and where their parent does not reap them they do so for ever. So a living group has a
 * member that is no zombie.
 */
function isGroupAlive(group: number): boolean {
  if (!answersSignals(-group)) return false
  // Process 1 belongs to root: if we cannot see it (hidepid), we may not see a member either.
  if (statOf(1) === undefined) return true
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.some((pid) => {
    const stat = statOf(Number(pid))
    return stat?.group === group && !hasEnded(stat)
  })
}

/**
 * Signal 0 asks whether there is such a process. Only "no such process" is a no: being forbidden to signal it means
 * that it lives.
 */
function answersSignals(target: number): boolean {
  try {
    process.kill(target, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}

interface Stat {
  readonly state: string
  readonly group: number
  readonly threads: number
  readonly born: string
}

/**
 * Whether /proc speaks of our own pid namespace: after `unshare --pid` without a new /proc, its numbers are those of
 * another namespace.
 */
let procIsOurs: boolean | undefined

/**
 * State, process group, threads and start time: fields 3, 5, 20 and 22 of /proc/pid/stat. The name before them may
 * contain anything, also parentheses.
 */
function statOf(pid: number): Stat | undefined {
  procIsOurs ??= linkOf('/proc/self') === String(process.pid)
  const text = procIsOurs ? readProc(`/proc/${pid}/stat`) : undefined
  if (text === undefined) return undefined
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const [state, group, threads, born] = [fields[0], fields[2], fields[17], fields[19]]
  if (state === undefined || born === undefined) return undefined
  return { state, group: Number(group), threads: Number(threads), born }
}
