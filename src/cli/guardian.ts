/**
 * The guardian: a small shell beside every command under a lock, in a session of its own, which sees to it that the
 * command never outlives the lock.
 *
 *     holdfast run ──── starts, first ────► guardian ◄──── "watch me" ──── sh, which then turns into the command
 *         │                                   ▲
 *         └─ orders, and on every renewal: ───┘
 *            "end it in 24 s, unless you hear of me"
 *
 * `holdfast run` may be killed with -9, or stopped past the end of its lease. It can do nothing about either, and its
 * command would work on while another process holds. The guardian can: it hears the end of the pipe, or its alarm
 * rings. It is a shell, because that starts in a millisecond and takes no memory worth speaking of, and it is the one
 * place where a command and everything it has started is ended: politely, then surely.
 *
 * Its process group is also named to the engine as a sign of life: it exists until the last process of the command is
 * gone.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import type { Socket } from 'node:net'
import { CannotRun } from './failure.ts'

/**
 * How often the guardian repeats KILL, every tenth of a second: for what was forked meanwhile, and until it is seen to
 * be gone.
 */
const LOOKS = 20

/**
 * $1: seconds between TERM and KILL, until an order says otherwise. $2: empty for a command that has a process group of
 * its own; for one that shares ours (on a terminal), the id that all its processes have in their environment. $3:
 * whether we are a part of another run's command: what kills us then is mostly the end of that, whose lock is over.
 *
 * `target` is what kill(1) takes: `-pid` for a group, else a pid, to which everything with the id in the same session
 * is added. The leader of a group leads a session, too: what has a group of its own in there (timeout, set -m) is added
 * where there is /proc. The alarm is a subshell that sleeps, and knows what was known when it was set; USR1 cancels it,
 * which is therefore the one signal that must not be ignored here. `kill -s N -- X` is the spelling that all shells
 * take.
 */
const SCRIPT = `
grace=$1 id=$2 nested=$3 target= session= alarm= delay=
trap '' HUP INT QUIT TERM TSTP TTIN TTOU

# proc(5): after the name, which may contain anything, come state, parent, group, session.
session_of() {
  read -r stat < "/proc/$1/stat" || return
  set -- \${stat##*) }
  echo "$4"
}
descendants() {
  for child in $(ps -A -o pid= -o ppid= | awk -v parent="$1" '$2 == parent { print $1 }'); do
    echo "$child"
    descendants "$child"
  done
}
# In the session of the group, and not in the group itself.
beside_group() {
  for file in $(grep -lsE "\\) [^ZX] [0-9]+ [0-9]+ \${target#-} " /proc/[0-9]*/stat); do
    read -r stat < "$file" || continue
    set -- \${stat##*) }
    [ "$4" = "\${target#-}" ] && [ "$3" != "$4" ] && pid=\${file#/proc/} && echo "\${pid%/stat}"
  done
}
members() {
  echo "$target"
  [ -n "$id" ] || { beside_group; return 0; }
  [ -r /proc/self/environ ] || { descendants "$target"; return 0; }
  for file in $(grep -lsF "HOLDFAST_ID=$id" /proc/[0-9]*/environ); do
    pid=\${file#/proc/} pid=\${pid%/environ}
    [ "$pid" = "$target" ] || [ "$(session_of "$pid")" != "$session" ] || echo "$pid"
  done
}
signal() {
  found=1
  for member in $(members); do kill -s "$1" -- "$member" && found=0; done
  return $found
}
# Zombies answer to signals. Where no parent reaps them, they would count as alive for ever.
alive() {
  signal 0 || return 1
  [ -r /proc/self/stat ] || return 0
  case $target in
    -*) grep -qsE "\\) [^ZX] [0-9]+ [0-9]+ \${target#-} " /proc/[0-9]*/stat ;;
    *) for member in $(members); do grep -qsE '\\) [^ZX] ' "/proc/$member/stat" && return 0; done; return 1 ;;
  esac
}
# after SECONDS COMMAND...: in the background, as $!, until USR1, which also ends what COMMAND has begun in this way. The trap may run before the line after the & does, so it cannot count on a variable set there.
after() {
  (
    before=$! by=KILL
    trap '[ "$!" = "$before" ] || kill -s "$by" "$!"; exit' USR1
    sleep "$1" &
    shift
    wait "$!" && { before=$! by=USR1; "$@"; }
  ) 3<&- &
}
end() {
  [ -n "$target" ] || return 0
  if [ "$1" != 0 ]; then
    signal TERM
    signal CONT
    after "$1" signal KILL
    killer=$!
    while alive && kill -s 0 "$killer"; do sleep 0.1; done
    kill -s USR1 "$killer"
  fi
  looks=${LOOKS}
  while signal KILL; [ $looks -gt 0 ] && alive; do sleep 0.1; looks=$((looks - 1)); done
}
cancel() {
  [ -z "$alarm" ] || kill -s USR1 "$alarm"
  alarm=
}
# Nothing of the command is left. Nor shall be of the guardian: this shell, its alarm, and what ends the command now.
over() {
  kill -s KILL -- "-$$"
}
arm() {
  cancel
  after "$delay" end "$grace"
  alarm=$!
}

while read -r order first second <&3; do
  case $order in
    watch) target=$first; [ -z "$id" ] || session=$(session_of "$target"); [ -z "$delay" ] || arm ;;
    # Without a target there is nothing to end yet: watch arms it.
    arm) delay=$first grace=$second; [ -z "$target" ] || arm ;;
    # Beside this loop: until then, orders and the end of the pipe are heard, as before.
    end) cancel; (end "$first"; over) 3<&- & ;;
    done) cancel; exit ;;
  esac
done
[ -z "$nested" ] || grace=0
end "$grace"
over
`

export class Guardian {
  /** Its process group, too. */
  readonly pid: number
  /** Whether its command gets a process group of its own: where there is no terminal. See command-process.ts. */
  readonly commandLeads: boolean
  /** It has ended, or was killed. */
  gone = false
  readonly #orders: Socket
  readonly #over: Promise<void>
  #mayEnd = false

  /**
   * `graceMs`: between TERM and KILL, if we die. `id`: what all processes of the command have in their environment.
   * `onKilled`: it is gone without our doing.
   */
  static async start(graceMs: number, id: string, onKilled: () => void): Promise<Guardian> {
    const commandLeads = !hasTerminal()
    // Without the id of a run that this one is part of: the process that ends that one must leave the guardian to end
    // this one.
    const { HOLDFAST_ID: outer, PATH = '', ...env } = process.env
    const args = [seconds(graceMs), commandLeads ? '' : id, outer === undefined ? '' : 'nested']
    const shell = spawn('/bin/sh', ['-c', SCRIPT, 'guardian', ...args], {
      // A session of its own: what is sent to our process group, or to our terminal, does not reach it.
      detached: true,
      stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
      env: { ...env, PATH: `/usr/bin:/bin:${PATH}` },
    })
    await once(shell, 'spawn').catch((error: Error) => {
      throw new CannotRun(`cannot start /bin/sh: ${error.message}`, { cause: error })
    })
    return new Guardian(shell, commandLeads, onKilled)
  }

  private constructor(shell: ChildProcess, commandLeads: boolean, onKilled: () => void) {
    this.pid = shell.pid as number
    this.commandLeads = commandLeads
    this.#orders = shell.stdio[3] as Socket
    // The guardian does not listen any more. Its exit tells.
    this.#orders.on('error', () => undefined)
    this.#over = once(shell, 'exit').then(() => {
      this.gone = true
      if (this.#mayEnd) return
      // Its alarm is a process of its own, which lives on. No order reaches it any more: it would end the command when
      // it rings, however often the lease was renewed.
      signalGroup(this.pid, 'SIGKILL')
      onKilled()
    })
  }

  /** What a command says "watch me" to. While it has this open, the guardian does not take us for dead. */
  get orders(): Socket {
    return this.#orders
  }

  /** From now on: end the command in `delayMs`, TERM and `graceMs` later KILL, unless this is said again before. */
  arm(delayMs: number, graceMs: number): void {
    this.#orders.write(`arm ${seconds(delayMs)} ${seconds(graceMs)}\n`)
  }

  /** End the command now. Resolves when nothing of it is left. It cancels the alarm, which can be set again. */
  async end(graceMs: number): Promise<void> {
    this.#mayEnd = true
    this.#orders.write(`end ${seconds(graceMs)}\n`)
    await this.#over
  }

  /** The command has ended by itself, and what it has left running is meant to run on. */
  async dismiss(): Promise<void> {
    this.#mayEnd = true
    // An order of which only the end of the pipe arrives would be an order to kill.
    await new Promise<void>((resolve) => this.#orders.write('done\n', () => resolve()))
  }
}

/** As sleep(1) takes them. `0` between TERM and KILL: KILL at once. */
function seconds(ms: number): string {
  return ms < 1 ? '0' : (ms / 1000).toFixed(3)
}

/** Whether there is a controlling terminal, and it has not hung up. */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', constants.O_RDWR | constants.O_NOCTTY))
    return true
  } catch {
    return false
  }
}

/** False: only processes of another user (sudo) are left, whose end is their own. */
export function signalGroup(group: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(-group, signal)
    return true
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EPERM') return false
    // No process is left.
    if (code === 'ESRCH') return true
    throw error
  }
}
