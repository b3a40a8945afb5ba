/**
 * Draws what processes did, and when, as an SVG: a lane for each process, a bar for each state it was in, and a mark
 * for each thing that happened. scripts/record-timelines.mjs gives it what was recorded.
 *
 * The picture brings its own background, light or dark as the reader's system is, so it is readable on any page.
 */

const WIDTH = 720
const LEFT = 150
const RIGHT = 24
const TOP = 40
const LANE = 78
const BAR = 24

/** The states of a lane. */
const BARS = {
  waits: 'waits',
  holds: 'holds',
  stopped: 'stopped',
}

const STYLE = `
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:#1c2422}
.back{fill:#fbfcfb;stroke:#d9dfdc}.quiet{fill:#5b6764}.grid{stroke:#d9dfdc}
.waits{fill:#f3d58a}.holds{fill:#4caf8b}.stopped{fill:#c3cbc8}
.name{font-weight:600}.good{fill:#10684f;font-weight:600}.bad{fill:#b3261e;font-weight:600}.tick{stroke:#1c2422}.tick.bad{stroke:#b3261e;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#dfe7e5}.back{fill:#161c20;stroke:#2f3a40}.quiet{fill:#97a5a3}.grid{stroke:#2f3a40}
.waits{fill:#8a6a1f}.holds{fill:#2b8265}.stopped{fill:#4a565b}.good{fill:#6fd0b4}.bad{fill:#ff8a80}.tick{stroke:#dfe7e5}.tick.bad{stroke:#ff8a80}}`

/**
 * A timeline is `{ title, lanes }`, a lane `{ name, note, bars, marks }`, a bar `{ state, fromMs, toMs, text }`, a mark
 * `{ atMs, text, kind, row }`. Times are as they were recorded; the picture begins at the first and ends at the last.
 */
export function drawTimeline({ title, lanes }) {
  const times = lanes.flatMap(({ bars, marks }) => [
    ...bars.flatMap(({ fromMs, toMs }) => [fromMs, toMs]),
    ...marks.map(({ atMs }) => atMs),
  ])
  const [firstMs, lastMs] = [Math.min(...times), Math.max(...times)]
  const scale = (WIDTH - LEFT - RIGHT) / (lastMs - firstMs)
  const x = (ms) => LEFT + (ms - firstMs) * scale
  const height = TOP + lanes.length * LANE + 22
  const parts = [
    `<rect class="back" x=".5" y=".5" width="${WIDTH - 1}" height="${height - 1}" rx="8"/>`,
    ...axis(firstMs, lastMs, x, height),
    ...lanes.flatMap((lane, index) => drawLane(lane, TOP + index * LANE, x)),
  ]
  const box = `viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}"`
  return `<svg xmlns="http://www.w3.org/2000/svg" ${box} role="img" aria-label="${encode(title)}"><title>${encode(title)}</title><desc>${encode(spoken(lanes, firstMs))}</desc><style>${STYLE}</style>${parts.join('\n')}</svg>\n`
}

function axis(firstMs, lastMs, x, height) {
  const step = [50, 100, 200, 500, 1000, 2000, 5000].find((ms) => (lastMs - firstMs) / ms <= 8) ?? 10_000
  const count = Math.floor((lastMs - firstMs) / step) + 1
  return Array.from({ length: count }, (_, index) => {
    const at = x(firstMs + index * step).toFixed(1)
    const label = `${((index * step) / 1000).toFixed(step < 1000 ? 1 : 0)} s`
    return `<path class="grid" d="M${at} ${TOP - 8}V${height - 12}"/><text class="quiet" x="${at}" y="22" text-anchor="middle">${label}</text>`
  })
}

function drawLane({ name, note = '', bars, marks }, top, x) {
  const middle = top + 26
  return [
    `<text x="16" y="${middle + 12}" class="name">${encode(name)}</text><text class="quiet" x="16" y="${middle + 29}">${encode(note)}</text>`,
    ...bars.map(({ state, fromMs, toMs, text = BARS[state] }) => {
      const [from, width] = [x(fromMs), Math.max(2, x(toMs) - x(fromMs))]
      const label =
        width > 7 * text.length ? `<text x="${(from + 6).toFixed(1)}" y="${middle + 17}">${encode(text)}</text>` : ''
      return `<rect class="${state}" x="${from.toFixed(1)}" y="${middle}" width="${width.toFixed(1)}" height="${BAR}" rx="3"/>${label}`
    }),
    ...marks.map((mark) => drawMark(mark, middle, x(mark.atMs))),
  ]
}

/** Its text is above the bar, or below it, and runs to the left where there is more room. */
function drawMark({ text, kind = '', row = 'above' }, middle, at) {
  const y = row === 'above' ? middle - 7 : middle + BAR + 16
  const [from, to] = row === 'above' ? [middle - 5, middle + BAR] : [middle, middle + BAR + 5]
  const isFar = at + 7 * text.length > WIDTH - 8
  const anchor = isFar ? ' text-anchor="end"' : ''
  return `<path class="${`tick ${kind}`.trim()}" d="M${at.toFixed(1)} ${from}V${to}"/><text class="${kind}" x="${(at + (isFar ? 2 : -2)).toFixed(1)}" y="${y}"${anchor}>${encode(text)}</text>`
}

/** The same in words, for readers who do not see it. */
function spoken(lanes, firstMs) {
  const said = lanes.flatMap(({ name, bars, marks }) => [
    ...bars.map(({ state, fromMs, toMs }) => ({
      atMs: fromMs,
      text: `${name} ${state === 'stopped' ? 'is stopped' : state} until ${Math.round(toMs - firstMs)} ms`,
    })),
    ...marks.map(({ atMs, text }) => ({ atMs, text: `${name}: ${text}` })),
  ])
  return said
    .toSorted((a, b) => a.atMs - b.atMs)
    .map(({ atMs, text }) => `${Math.round(atMs - firstMs)} ms: ${text}.`)
    .join(' ')
}

function encode(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}
