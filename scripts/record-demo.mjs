/**
 * Records two shells that want the same lock, and draws them as docs/demo.svg: `node scripts/record-demo.mjs`, after
 * `npm run build`.
 *
 * Everything in the picture was printed by a real run: two shells on two terminals (script(1) of util-linux makes
 * them), one lock file, and the times at which each line appeared. Only the name of the host is replaced.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const HOST = 'laptop'
const COLUMNS = 72
const PANES = [
  {
    title: 'first shell',
    startMs: 0,
    commands: ['holdfast run deploy -- ./deploy.sh', 'holdfast run deploy -n -- ./deploy.sh'],
  },
  { title: 'second shell', startMs: 1200, commands: ['holdfast run deploy -- ./deploy.sh'] },
]
const DEPLOY = '#!/bin/sh\necho "deploying with token $HOLDFAST_TOKEN"\nsleep 4\necho done\n'
const PROMPT = '$ '
const ESCAPE = '\x1b'
/** A person reads before typing on. */
const PAUSE_MS = 700

/** Run the commands of both panes; answer what appeared when, as frames: `{ row, text, fromMs, toMs }`. */
async function record(cwd) {
  mkdirSync(join(cwd, 'bin'))
  executable(join(cwd, 'deploy.sh'), DEPLOY)
  executable(
    join(cwd, 'bin', 'holdfast'),
    `#!/bin/sh\nexec '${process.execPath}' '${resolve('dist/bundle/cli/holdfast.cjs')}' "$@"\n`,
  )
  const env = {
    ...process.env,
    HOME: cwd,
    HOLDFAST_URL: '',
    PATH: `${join(cwd, 'bin')}:${process.env.PATH}`,
    TERM: 'xterm',
    NO_COLOR: '',
  }
  const startedAt = performance.now()
  const now = () => performance.now() - startedAt
  return Promise.all(
    PANES.map(async ({ title, startMs, commands }) => {
      const screen = new Screen(now)
      await pause(startMs)
      for (const command of commands) {
        screen.write(`${PROMPT}${command}\r\n`)
        await pause(PAUSE_MS)
        const line = `stty cols ${COLUMNS}; ${command}`
        const shell = spawn('script', ['-qefc', line, '/dev/null'], { cwd, env, stdio: ['pipe', 'pipe', 'inherit'] })
        shell.stdout.on('data', (bytes) => screen.write(bytes.toString().replaceAll(hostname(), HOST)))
        await once(shell, 'close')
        await pause(PAUSE_MS)
      }
      screen.write(PROMPT)
      return { title, frames: screen.end() }
    }),
  )
}

function executable(file, text) {
  writeFileSync(file, text)
  chmodSync(file, 0o755)
}

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms))
}

const COLOUR = new RegExp(`${ESCAPE}\\[[0-9;]*m`, 'g')
const PIECE = new RegExp(`\r\n|\r${ESCAPE}\\[K|[^\r\n${ESCAPE}]+`, 'g')

/**
 * A terminal that knows what our output uses: new lines, "back to the start and erase", and colours, which are left
 * out.
 */
class Screen {
  #now
  #frames = []
  #row = 0
  #text = ''
  #since = 0

  constructor(now) {
    this.#now = now
  }

  write(output) {
    const plain = output.replaceAll(COLOUR, '')
    for (const [piece] of plain.matchAll(PIECE)) {
      if (piece === '\r\n') this.#newLine()
      else this.#show(piece.startsWith('\r') ? '' : this.#text + piece)
    }
  }

  end() {
    this.#close(Infinity)
    return this.#frames
  }

  #newLine() {
    this.#close(Infinity)
    this.#row += 1
    this.#text = ''
  }

  #show(text) {
    this.#close(this.#now())
    this.#text = text
    this.#since = this.#now()
  }

  #close(toMs) {
    if (this.#text !== '') this.#frames.push({ row: this.#row, text: this.#text, fromMs: this.#since, toMs })
  }
}

function draw(panes) {
  const [fontSize, lineHeight, charWidth, margin, bar] = [13, 19, 7.83, 14, 30]
  const rows = Math.max(...panes.flatMap(({ frames }) => frames.map(({ row }) => row))) + 1
  const width = COLUMNS * charWidth + 2 * margin
  const height = bar + rows * lineHeight + margin
  const lastMs = Math.max(...panes.flatMap(({ frames }) => frames.map(({ fromMs }) => fromMs)))
  const totalMs = lastMs + 4000
  const percent = (ms) => `${((100 * ms) / totalMs).toFixed(2)}%`
  const rules = []
  const body = panes.map(({ title, frames }, pane) => {
    const texts = frames.map(({ row, text, fromMs, toMs }, index) => {
      const name = `f${pane}_${index}`
      const off = toMs === Infinity ? '' : `${percent(toMs)},100%{opacity:0}`
      const until = toMs === Infinity ? '100%' : `${((100 * toMs) / totalMs - 0.01).toFixed(2)}%`
      const before = fromMs < 1 ? '' : `0%,${((100 * fromMs) / totalMs - 0.01).toFixed(2)}%{opacity:0}`
      rules.push(`@keyframes ${name}{${before}${percent(fromMs)},${until}{opacity:1}${off}}`)
      const still = toMs === Infinity ? 1 : 0
      const colour = text.startsWith(PROMPT) ? '#e6edf3' : text.startsWith('waiting') ? '#d29922' : '#9fb3c8'
      const style = `animation:${name} ${(totalMs / 1000).toFixed(1)}s infinite;opacity:${still}`
      return `<text x="${margin}" y="${bar + (row + 0.8) * lineHeight}" fill="${colour}" style="${style}">${encode(text)}</text>`
    })
    return `<g transform="translate(0 ${pane * (height + 10)})"><rect width="${width}" height="${height}" rx="8" fill="#0d1117"/><text x="${margin}" y="20" fill="#6e7681">${title}</text>${texts.join('')}</g>`
  })
  const size = `viewBox="0 0 ${width} ${2 * height + 10}" width="${width}"`
  const font = `font-family="ui-monospace,Menlo,Consolas,monospace" font-size="${fontSize}" xml:space="preserve"`
  const label =
    'Two shells run a command under one lock: the second one waits, is shown who holds it, and goes on when the first has ended.'
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${font} role="img" aria-label="${label}"><style>${rules.join('')}</style>${body.join('')}</svg>\n`
}

function encode(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

const folder = mkdtempSync(join(tmpdir(), 'holdfast-demo-'))
try {
  const panes = await record(folder)
  writeFileSync('docs/demo.svg', draw(panes))
} finally {
  rmSync(folder, { recursive: true, force: true })
}
