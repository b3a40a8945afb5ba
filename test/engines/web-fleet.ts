/**
 * Servers of an application, each a process of its own, on one engine. What they do is in a journal that all of them
 * append to: one line of JSON each.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { vi } from 'vitest'

/** One line of the journal. */
export interface Noted {
  readonly what: string
  readonly pid: number
  readonly job?: string
  readonly token?: string
  readonly [about: string]: unknown
}

export interface WebServer {
  readonly url: string
  readonly child: ChildProcess
}

const LIMIT_MS = 30_000

export class WebFleet implements AsyncDisposable {
  readonly folder: string = mkdtempSync(join(tmpdir(), 'holdfast-web-'))
  readonly #journal = join(this.folder, 'journal')
  readonly #program: string
  readonly #args: readonly string[]
  readonly #children = new Set<ChildProcess>()

  /** `args` of the program come after the journal. */
  constructor(program: string, ...args: readonly string[]) {
    this.#program = program
    this.#args = args
    writeFileSync(this.#journal, '')
  }

  /** A process that serves. `locks`: the URL of the locks. */
  async serve(locks: string): Promise<WebServer> {
    const env = { ...process.env, HOLDFAST_URL: locks }
    const child = fork(this.#program, [this.#journal, ...this.#args], { env })
    this.#children.add(child)
    const told = await Promise.race([once(child, 'message'), once(child, 'exit').then(([code]) => [{ code }])])
    const [{ url, code }] = told as [{ url?: string; code?: number }]
    if (url === undefined) throw new Error(`${this.#program} ended with ${code}`)
    return { url, child }
  }

  /** Everything that was noted, or what was noted as `what`. */
  noted(what?: string): readonly Noted[] {
    const lines = readFileSync(this.#journal, 'utf8').split('\n').filter(Boolean)
    const all = lines.map((line) => JSON.parse(line) as Noted)
    return what === undefined ? all : all.filter((one) => one.what === what)
  }

  /** Resolves when `count` of them were noted. */
  async until(what: string, count: number): Promise<readonly Noted[]> {
    return await vi.waitFor(
      () => {
        const found = this.noted(what)
        if (found.length < count) throw new Error(`${found.length} of ${count} times '${what}' was noted`)
        return found
      },
      { timeout: LIMIT_MS, interval: 5 },
    )
  }

  /** Note something in between. */
  note(noted: Noted): void {
    appendFileSync(this.#journal, `${JSON.stringify(noted)}\n`)
  }

  /** Let all long work end. */
  open(): void {
    writeFileSync(`${this.#journal}.open`, '')
  }

  shut(): void {
    rmSync(`${this.#journal}.open`, { force: true })
  }

  async kill({ child }: WebServer): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children) await this.kill({ url: '', child })
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** What `begin` and `end` of one key must be: one after the other, never two at a time, with rising tokens. */
export function overlaps(noted: readonly Noted[]): readonly string[] {
  const wrong: string[] = []
  let inside: Noted | undefined
  let last = 0n
  for (const one of noted) {
    if (one.what === 'begin') {
      if (inside !== undefined) wrong.push(`${one.pid} began while ${inside.pid} was inside`)
      if (BigInt(one.token ?? 0) <= last) wrong.push(`token ${one.token} after ${last}`)
      last = BigInt(one.token ?? 0)
      inside = one
    } else if (one.what === 'end') inside = undefined
  }
  return wrong
}
