#!/usr/bin/env node
/**
 * Where `holdfast` starts: it loads the other files of the bundle (scripts/bundle.mjs), as `require` would, but with
 * what V8 compiled of them the last time. Node's own cache, where it has one, has the outermost functions of a file
 * only. Ours is made when a command has ended, and so has every function that was called.
 *
 * It is code that is executed. So it is kept in the user's own folder (compile-cache.ts), and only a file of this user
 * that no other user may write is used. V8 itself refuses what was compiled by another V8, or with other flags, but
 * compares only the length of the source: the name of the folder has a digest of the whole bundle in it.
 *
 * Only for the bundle: what it loads has to be CommonJS, and beside it.
 */
import {
  closeSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { Script } from 'node:vm'
import { compileCacheFolder } from './compile-cache.ts'

/** A digest of all files of the bundle, by scripts/bundle.mjs. */
declare const HOLDFAST_BUNDLE: string

/** After so long, V8 may have dropped what it compiled for the start. */
const LONGEST_RUN_S = 60
/** Since a command was first started by that Node and that Holdfast. */
const LONGEST_KEPT_MS = 90 * 24 * 3_600_000

interface BundledFile {
  exports: unknown
}

type CompiledFile = (
  exports: unknown,
  require: typeof load,
  module: BundledFile,
  __filename: string,
  __dirname: string,
) => void

const files = new Map<string, BundledFile>()
/** Those that were compiled anew, by the path to keep them at. */
const compiled = new Map<string, Script>()
const folder = keptFolder()

/** Undefined: nothing is kept. Each command has its own, because it calls functions of its own. */
function keptFolder(): string | undefined {
  const [, , command = ''] = process.argv
  const below = /^[a-z]+$/.test(command) ? compileCacheFolder() : undefined
  return below && join(below, `${process.version}-${process.arch}-${HOLDFAST_BUNDLE}`, command)
}

function load(id: string): unknown {
  if (!id.startsWith('./')) return require(id)
  const known = files.get(id)
  if (known !== undefined) return known.exports
  const file: BundledFile = { exports: {} }
  files.set(id, file)
  const run = compile(id).runInThisContext() as CompiledFile
  run(file.exports, load, file, join(__dirname, id), __dirname)
  return file.exports
}

/** For what `require` cannot load. In code that was compiled by `Script`, Node still calls `import` an experiment. */
load.import = (name: string): Promise<unknown> => import(name)

function compile(id: string): Script {
  const filename = join(__dirname, id)
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(filename, 'utf8')}\n})`
  const path = folder && join(folder, id)
  const cachedData = path === undefined ? undefined : read(path)
  const script = new Script(source, { filename, ...(cachedData && { cachedData }) })
  if (path !== undefined && script.cachedDataRejected !== false) compiled.set(path, script)
  return script
}

function read(path: string): Buffer | undefined {
  let descriptor: number | undefined
  try {
    descriptor = openSync(path, 'r')
    const { uid, mode } = fstatSync(descriptor)
    return uid === process.geteuid?.() && (mode & 0o022) === 0 ? readFileSync(descriptor) : undefined
  } catch {
    return undefined
  } finally {
    if (descriptor !== undefined) closeSync(descriptor)
  }
}

/**
 * A command that has failed may not have called much. The first one that has not leaves a folder, and the second fills
 * it: in a container that is made for one command, all of it would be for nothing.
 */
function keep(code: number): void {
  if (compiled.size === 0 || folder === undefined || code !== 0 || process.uptime() > LONGEST_RUN_S) return
  try {
    const isFirst = mkdirSync(folder, { recursive: true, mode: 0o700 }) !== undefined
    if (isFirst) removeOld(dirname(dirname(folder)))
    else for (const [path, script] of compiled) write(path, script.createCachedData())
  } catch {
    // A full disk, or a home that cannot be written: then it is compiled anew each time.
  }
}

/** What other versions of Node and of Holdfast have kept. One that is still used keeps it again. */
function removeOld(below: string): void {
  for (const name of readdirSync(below)) {
    const path = join(below, name)
    if (!/^v[\d.]+-\w+-[0-9a-f]{16}$/.test(name) || Date.now() - statSync(path).mtimeMs < LONGEST_KEPT_MS) continue
    rmSync(path, { recursive: true, force: true })
  }
}

/** Whole or not at all, also after a power cut: V8 believes what it reads. */
function write(path: string, data: Buffer): void {
  const fresh = `${path}.${process.pid}`
  try {
    const descriptor = openSync(fresh, 'wx', 0o600)
    try {
      writeFileSync(descriptor, data)
      fsyncSync(descriptor)
    } finally {
      closeSync(descriptor)
    }
    renameSync(fresh, path)
  } catch (error) {
    rmSync(fresh, { force: true })
    throw error
  }
}

// Bun and Deno run it, too, and compile in their own ways.
if (process.versions.bun !== undefined || process.versions.deno !== undefined) {
  require('./main.cjs')
} else {
  process.on('exit', keep)
  load('./main.cjs')
}
