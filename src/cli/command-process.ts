/**
 * The command under the lock, as a process.
 *
 * Without a terminal it gets a session and a process group of its own, so that all of it can be signalled, and nothing
 * else. With a terminal it must stay in our session, or `ssh` and `sudo` could not ask for a password, and in our
 * group, or Ctrl-C, Ctrl-Z and reading from the keyboard would not be its own. The alternatives
 * are in docs/decisions/008-a-command-on-a-terminal.md.
 */
import { type ChildProcess, execFileSync, type StdioOptions, spawn } from 'node:child_process'
import { accessSync, constants, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { UsageError } from './args.ts'
import { EXITS, type Exit, signalExit } from './exits.ts'
import { CannotRun } from './failure.ts'
import { type Guardian, hasTerminal, signalGroup } from './guardian.ts'
import { printable } from './output.ts'
import { ENDING } from './signals.ts'

/** How a command ended. */
export interface CommandExit {
  readonly exit: number
  readonly signal: NodeJS.Signals | null
}

/**
 * The exit code if the command cannot be run, and why; undefined if it can. Asked before standing in line: a typing
 * error should not wait for its turn.
 */
export function refuseProgram(program: readonly string[]): { exit: number; message: string } | undefined {
  if (process.platform === 'win32')
    throw new UsageError('running commands needs a POSIX system; use the library on Windows')
  const name = program[0] as string
  const found = lookUp(name)
  if (found === 'ok') return undefined
  const exit = EXITS[found].code
  if (found === 'cannotRun') return { exit, message: `cannot run '${printable(name)}': not an executable file` }
  const hint = /\s/.test(name) ? `; for a line of shell: sh -c '${printable(name)}'` : ''
  return { exit, message: `command not found: '${printable(name)}'${hint}` }
}

/** `ok`, or with which exit a shell would refuse to run it. */
function lookUp(
  name: string,
  path: string = process.env.PATH ?? '/usr/local/bin:/usr/bin:/bin',
): Exit & ('ok' | 'cannotRun' | 'notFound') {
  const files = name.includes('/') ? [name] : path.split(':').map((folder) => join(folder === '' ? '.' : folder, name))
  let answer: 'cannotRun' | 'notFound' = 'notFound'
  for (const file of files) {
    const there = lookAt(file)
    if (there === 'ok') return 'ok'
    if (there === 'cannotRun') answer = 'cannotRun'
  }
  return answer
}

function lookAt(file: string): Exit & ('ok' | 'cannotRun' | 'notFound') {
  try {
    const stats = statSync(file, { throwIfNoEntry: false })
    if (stats === undefined) return 'notFound'
    return stats.isFile() && isExecutable(file) ? 'ok' : 'cannotRun'
  } catch (error) {
    // In a folder that may not be read there may be one. In a file, or below a name that is too long, there is none.
    return (error as NodeJS.ErrnoException).code === 'EACCES' ? 'cannotRun' : 'notFound'
  }
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/**
 * What the shell does that becomes the command: it tells the guardian its own pid, which will be that of the command,
 * and then runs the command in its place. So the command never runs unguarded. $1 is `-` where the command leads a
 * process group: the guardian then signals the whole group.
 */
const BECOME = 'echo "watch $1$$" >&3; shift; exec "$@" 3>&-'

export class CommandProcess {
  /** Rejects if it could not be started: too many processes. */
  readonly ended: Promise<CommandExit>
  readonly #process: ChildProcess
  readonly #leads: boolean
  readonly #onRefused: () => void
  readonly #passedOn = new Set<NodeJS.Signals>()
  #refused = false

  /** Throws for arguments that are too long. `onRefused`: the kernel lets us signal nothing of it; called once. */
  constructor(program: readonly string[], env: NodeJS.ProcessEnv, guardian: Guardian, onRefused: () => void) {
    this.#leads = guardian.commandLeads
    this.#onRefused = onRefused
    const stdio: StdioOptions = ['inherit', 'inherit', 'inherit', guardian.orders]
    const cannotRun = (error: Error): CannotRun =>
      new CannotRun(`cannot run '${program[0]}': ${error.message}`, { cause: error })
    try {
      this.#process = spawn('/bin/sh', ['-c', BECOME, 'sh', this.#leads ? '-' : '', ...program], {
        detached: this.#leads,
        stdio,
        env,
      })
    } catch (error) {
      throw cannotRun(error as Error)
    }
    this.ended = new Promise((resolve, reject) => {
      // Node tells by the same event of a command that was not started, and of one that may not be signalled: `sudo`
      // has made it one of another user. It runs, and its end is its own.
      this.#process.on('error', (error) => {
        if (this.#process.pid === undefined) reject(cannotRun(error))
        else this.#wasRefused()
      })
      this.#process.once('exit', (code, signal) =>
        resolve({ exit: code ?? signalExit(signal as NodeJS.Signals), signal }),
      )
    })
  }

  /** Its process group, where it has one of its own. */
  get group(): number | undefined {
    return this.#leads ? this.#process.pid : undefined
  }

  /** Pass on a signal that we got, unless the command has got it too. */
  forward(signal: NodeJS.Signals): void {
    if (!this.#leads && sentByTerminal(signal)) return
    this.#passedOn.add(signal)
    if (this.#leads && ENDING.has(signal)) this.signal(signal)
    else this.#process.kill(signal)
  }

  /** Whether it has died of a signal that it got from us: then what it has started was not left running on purpose. */
  diedOfOurs({ signal }: CommandExit): boolean {
    return signal !== null && this.#passedOn.has(signal)
  }

  /** Signal all of it that can be reached without looking for it. The guardian reaches the rest. */
  signal(signal: NodeJS.Signals): void {
    if (this.group === undefined) this.#process.kill(signal)
    else if (!signalGroup(this.group, signal)) this.#wasRefused()
  }

  #wasRefused(): void {
    if (this.#refused) return
    this.#refused = true
    this.#onRefused()
  }
}

/**
 * Whether the terminal sends this to its whole foreground group: the command then has it already. The kernel does not
 * tell who sent a signal, but keys reach only the foreground, and a hang-up leaves no terminal.
 */
function sentByTerminal(signal: NodeJS.Signals): boolean {
  if (signal === 'SIGINT' || signal === 'SIGQUIT') return inForeground()
  return signal === 'SIGHUP' && !hasTerminal()
}

/** Whether keys like Ctrl-C go to our process group now. */
function inForeground(): boolean {
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
