/**
 * What the processes of one host agree on: what time it is, and since when the machine has been up.
 *
 * Time is the kernel's monotonic clock, which every process of a host reads alike and which cannot be set: wall-clock
 * jumps do nothing to a lock. It stops while the machine sleeps, and that is right here: holders, waiters and the file
 * all sleep together, so no entry expires while the machine is asleep. (The core counts sleep against a holder, so a
 * holder never believes longer than this clock does.)
 *
 * Two things would make processes of one host disagree, and are corrected: a time namespace shifts the clock by a known
 * offset, and LXC gives every container a boot id of its own, by a mount, so that such an id says nothing about the
 * machine.
 */
import { readFileSync, readlinkSync } from 'node:fs'
import { type Clock, systemClock } from '../../core/clock.ts'
import { monotonicNs } from './monotonic.ts'

const BOOT_ID = '/proc/sys/kernel/random/boot_id'

/** The contents of a file of /proc; undefined where there is none. */
export function readProc(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

export function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path)
  } catch {
    return undefined
  }
}

/** How far this process's time namespace shifts the monotonic clock, in nanoseconds. Zero on nearly all systems. */
function monotonicOffsetNs(): bigint {
  // The file describes the namespace for children; ours is the same one, except in the process that just created it.
  if (linkOf('/proc/self/ns/time') !== linkOf('/proc/self/ns/time_for_children')) return 0n
  const match = /^monotonic\s+(-?\d+)\s+(\d+)/m.exec(readProc('/proc/self/timens_offsets') ?? '')
  if (match === null) return 0n
  return BigInt(match[1] as string) * 1_000_000_000n + BigInt(match[2] as string)
}

/** Milliseconds of the host's monotonic clock. Timers are the system's. */
export function hostClock(): Clock {
  const offsetNs = monotonicOffsetNs()
  // Asked for now, so that a runtime which cannot tell is refused before a file is made.
  monotonicNs()
  return {
    now: () => Number(monotonicNs() - offsetNs) / 1e6,
    timer: systemClock.timer,
    stayAlive: systemClock.stayAlive,
  }
}

/**
 * A name for this run of the machine, or of the container where the container has its own; undefined where nothing
 * tells.
 */
export function sessionOf(): string | undefined {
  if (process.platform !== 'darwin') return readProc(BOOT_ID)?.trim()
  try {
    // Loaded here, because only macOS needs it.
    const { execFileSync } = process.getBuiltinModule('node:child_process')
    return execFileSync('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], { encoding: 'utf8' }).trim()
  } catch {
    return undefined
  }
}

/**
 * The boot id: another one means that the machine was restarted, and that every entry of before is gone with its
 * process. Null where it is unknown or made up by a container: then only a clock that has gone back tells of a restart.
 */
export function bootId(): string | null {
  const mounts = readProc('/proc/self/mountinfo') ?? ''
  return mounts.includes(` ${BOOT_ID} `) ? null : (sessionOf() ?? null)
}
