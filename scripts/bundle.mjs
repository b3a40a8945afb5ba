/**
 * The command line in few files, dist/bundle/cli: Node takes a good millisecond to find, read and link each of a
 * hundred small modules, and a shell script pays that at every `holdfast run`. The same code as dist/src, three folders
 * below package.json like dist/src/cli, without comments and blanks: one file for the start, one for each engine, one
 * for what they have in common, one for running commands, one for each command that looks. A command loads four of
 * them. Packages stay outside: the user's own are used.
 *
 * CommonJS, because its loader is a part of Node's own start, and that of modules takes as long again.
 */
import { readdirSync } from 'node:fs'
import { rolldown } from 'rolldown'

// The longest name first: that of postgres-advisory begins with that of another one.
const engines = readdirSync('dist/src/engines').filter((name) => name !== 'shared')
const engine = engines.toSorted((a, b) => b.length - a.length).join('|')

/** By path below dist/src: what is loaded together is in one file. */
const FILES = [
  [new RegExp(`^(?:engines|clients|guards|transactions)/(${engine})\\b`), 1],
  // What the start itself needs of the core stays with it.
  [/^core\/(?:did-you-mean|duration|keys)\b/, null],
  [/^cli\/(?:commands\/(?:run|elect)|job|supervise|guardian|command-process|wait-display)\b/, 'job'],
  [/^(?:core|primitives|engines|clients|guards|transactions|locks|connect)\b/, 'core'],
  [/^cli\/(?:failure|line-view|open|signals)\b/, 'core'],
]

function fileOf(id) {
  const path = id.split('/dist/src/').at(-1)
  for (const [pattern, name] of FILES) {
    const found = pattern.exec(path)
    if (found !== null) return typeof name === 'number' ? found[name] : name
  }
  return null
}

const bundle = await rolldown({
  input: { holdfast: 'dist/src/cli/main.js' },
  platform: 'node',
  external: /^[^./]/,
  preserveEntrySignatures: false,
})
await bundle.write({
  dir: 'dist/bundle/cli',
  format: 'cjs',
  entryFileNames: '[name].cjs',
  chunkFileNames: '[name].cjs',
  // Names stay: HOLDFAST_DEBUG=1 shows them.
  minify: { compress: true, mangle: false, codegen: true },
  codeSplitting: { includeDependenciesRecursively: false, groups: [{ name: fileOf, debugName: 'rooms' }] },
})
await bundle.close()
