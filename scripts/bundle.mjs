/**
 * The command line in few files, dist/bundle/cli: Node takes a good millisecond to find, read and link each of a
 * hundred small modules, and a shell script pays that at every `holdfast run`. The same code as dist/src, three folders
 * below package.json like dist/src/cli, without comments and blanks: one file for the start, one for each engine, one
 * for what they have in common, one for running commands, one for each command that looks. A command loads five of
 * them. Packages stay outside: the user's own are used. holdfast.cjs is the one that Node loads; it loads the others
 * (src/cli/start.ts).
 *
 * CommonJS, because its loader is a part of Node's own start, and that of modules takes as long again.
 */
import { createHash } from 'node:crypto'
import { readdirSync, writeFileSync } from 'node:fs'
import { rolldown } from 'rolldown'
import { parseAst } from 'rolldown/parseAst'

// The longest name first: that of postgres-advisory begins with that of another one.
const engines = readdirSync('dist/src/engines').filter((name) => name !== 'shared')
const engine = engines.toSorted((a, b) => b.length - a.length).join('|')

/** By path below dist/src: what is loaded together is in one file. */
const FILES = [
  [new RegExp(`^(?:engines|clients|guards|transactions)/(${engine})\\b`), 1],
  // What the start itself needs of the core stays with it.
  [/^core\/(?:did-you-mean|duration|keys|quoted)\b/, null],
  [/^cli\/(?:commands\/(?:run|elect)|job|supervise|guardian|command-process|wait-display)\b/, 'job'],
  [/^(?:core|primitives|engines|clients|guards|transactions|locks|connect)\b/, 'core'],
  [/^cli\/(?:failure|line-view|open|signals)\b/, 'core'],
  [/\brolldown\/runtime\b/, 'core'],
]

function fileOf(id) {
  const path = id.split('/dist/src/').at(-1)
  for (const [pattern, name] of FILES) {
    const found = pattern.exec(path)
    if (found !== null) return typeof name === 'number' ? found[name] : name
  }
  return null
}

const common = { platform: 'node', external: /^[^./]/, preserveEntrySignatures: false }
const output = {
  dir: 'dist/bundle/cli',
  format: 'cjs',
  entryFileNames: '[name].cjs',
  chunkFileNames: '[name].cjs',
  // Names stay: HOLDFAST_DEBUG=1 shows them.
  minify: { compress: true, mangle: false, codegen: true },
}

const bundle = await rolldown({ ...common, input: { main: 'dist/src/cli/main.js' } })
const { output: files } = await bundle.write({
  ...output,
  codeSplitting: { includeDependenciesRecursively: false, groups: [{ name: fileOf, debugName: 'rooms' }] },
})
await bundle.close()

const digest = createHash('sha256')
for (const { fileName, code } of files) {
  const loaded = withImports(code)
  digest.update(`${fileName} ${loaded}`)
  writeFileSync(`${output.dir}/${fileName}`, loaded)
}

/** What holdfast.cjs has compiled cannot `import` by itself: it is handed a function that can, as `require.import`. */
function withImports(code) {
  const found = importsOf(parseAst(code)).toSorted((a, b) => b.start - a.start)
  return found.reduce((text, { start, end }) => {
    if (!text.startsWith('import(', start)) throw new Error(`no import at ${start}: ${text.slice(start, end)}`)
    const given = text.slice(start + 'import('.length, end - 1)
    return `${text.slice(0, start)}(require.import ?? ((name) => import(name)))(${given})${text.slice(end)}`
  }, code)
}

function importsOf(node) {
  if (typeof node !== 'object' || node === null) return []
  const within = Object.values(node).flatMap(importsOf)
  return node.type === 'ImportExpression' ? [node, ...within] : within
}

// By itself: it is the one file that Node loads, and has to be small.
const start = await rolldown({
  ...common,
  input: { holdfast: 'dist/src/cli/start.js' },
  external: /^[^./]|^\.\/main\.cjs$/,
  transform: { define: { HOLDFAST_BUNDLE: JSON.stringify(digest.digest('hex').slice(0, 16)) } },
})
await start.write(output)
await start.close()
