/** The pages of the documentation, and their code blocks as tests compile and run them. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { builtModule } from './built.ts'

/** Inside of the package, where `holdfast` is found by its own name. */
const FOLDER = join('dist', 'docs')

/** The README, and every page of docs/ but the decisions. */
export function documentedPages(): readonly string[] {
  const paths = readdirSync('docs', { recursive: true, encoding: 'utf8' })
  const pages = paths.filter((path) => path.endsWith('.md') && !path.startsWith('decisions'))
  return ['README.md', ...pages.map((path) => join('docs', path)).toSorted()]
}

export interface CodeBlock {
  readonly page: string
  /** Where its code begins, in the page. */
  readonly line: number
  readonly code: string
}

/** The blocks of a page that are JavaScript or TypeScript. */
export function codeBlocks(page: string, text: string = readFileSync(page, 'utf8')): readonly CodeBlock[] {
  return [...text.matchAll(/^( *)```[jt]s\n(.*?)^ *```/gms)].map(({ index, 1: indent = '', 2: code = '' }) => ({
    page,
    line: text.slice(0, index).split('\n').length + 1,
    code: code.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  }))
}

/** The one block of a page in which `part` occurs. */
export function blockWith(page: string, part: string): CodeBlock {
  const [block, ...others] = codeBlocks(page).filter(({ code }) => code.includes(part))
  if (block === undefined || others.length > 0)
    throw new Error(`${page} has ${block === undefined ? 'no block' : 'several blocks'} with: ${part}`)
  return block
}

export interface Said {
  readonly exit: number | null
  readonly said: string
}

/** Runs a program of a user to its end: it may import `holdfast`. Without a URL, `connect()` gives locks in memory. */
export async function runProgramText(name: string, program: string): Promise<Said> {
  builtModule('src/index.ts')
  mkdirSync(FOLDER, { recursive: true })
  const file = join(FOLDER, `${name}.mjs`)
  writeFileSync(file, program)
  try {
    const env = { ...process.env, HOLDFAST_URL: 'memory:' }
    const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'pipe'], env })
    let said = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes: Buffer) => (said += bytes.toString()))
    const [exit] = (await once(child, 'close')) as [number | null]
    return { exit, said }
  } finally {
    rmSync(file)
  }
}
