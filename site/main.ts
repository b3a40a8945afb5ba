/** `npm run docs`: builds the site into dist/www, and fails where a link leads nowhere. */
import { buildSite } from './build.ts'

const FOLDER = 'dist/www'
const startedAt = performance.now()
const { pages, dead } = buildSite(FOLDER)
for (const link of dead) console.error(`leads nowhere: ${link}`)
console.log(`${pages} pages in ${Math.round(performance.now() - startedAt)} ms: open ${FOLDER}/index.html`)
process.exitCode = dead.length === 0 ? 0 : 1
