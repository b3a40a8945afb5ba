/** Programs of a user, as tests run them: in a process of their own, with what `npm run build` emits. */
import { spawn } from 'node:child_process'
import { pathToFileURL } from 'node:url'

export interface Ended {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/**
 * Run a module to its end. It has `createLocks`, `connect`, `memory`, `subscribe` of diagnostics channels, `say`, and
 * `locks`: what the expression `locks` makes.
 */
export async function runProgram(locks: string, body: string): Promise<Ended> {
  const built = (path: string): string => JSON.stringify(pathToFileURL(`dist/src/${path}`).href)
  const program = `
    import { connect, createLocks } from ${built('index.js')}
    import { memory } from ${built('engines/memory/index.js')}
    import { subscribe } from 'node:diagnostics_channel'
    const locks = ${locks}
    const say = (...words) => process.stdout.write(words.map(String).join(' ') + '\\n')
    ${body}`
  // A process that should end and does not is ended: it must not outlive the test that failed because of it.
  const limits = { timeout: 30_000, killSignal: 'SIGKILL' } as const
  const child = spawn(
    process.execPath,
    ['--input-type=module', '--unhandled-rejections=strict', '--eval', program],
    limits,
  )
  let [out, err] = ['', '']
  child.stdout.on('data', (chunk) => {
    out += chunk
  })
  child.stderr.on('data', (chunk) => {
    err += chunk
  })
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
  return { code, out: out.trim(), err }
}
