/**
 * The command line as one file, dist/bundle/cli/holdfast.js: Node takes a good millisecond to find, read and link each
 * of a hundred small modules, and a shell script pays that at every `holdfast run`. The same code as dist/src, three
 * folders below package.json like dist/src/cli. Packages stay outside: the user's own are used.
 */
import { rolldown } from 'rolldown'

const bundle = await rolldown({ input: 'dist/src/cli/main.js', platform: 'node', external: /^[^./]/ })
await bundle.write({ file: 'dist/bundle/cli/holdfast.js', format: 'esm', codeSplitting: false })
await bundle.close()
