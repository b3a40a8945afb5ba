// Metrics for Prometheus over HTTP: what this process counts, and what one process of the fleet samples for all.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { createLocks } from 'holdfast'
import { MemoryServer, memory } from 'holdfast/memory'
import { prometheus } from 'holdfast/prometheus'

const metrics = prometheus()
const server = createServer((_, response) => {
  response.setHeader('content-type', metrics.contentType)
  response.end(metrics.text())
}).listen(0)
await once(server, 'listening')
const scrape = async () => (await fetch(`http://localhost:${server.address().port}/metrics`)).text()

const lines = new MemoryServer()
const fleet = ['red', 'blue'].map((holder) => createLocks(memory({ server: lines }), { holder }))
const [red, blue] = fleet

// The leader samples. When it ends, another process does.
const ending = new AbortController()
const samplers = fleet.map((locks) =>
  locks
    .election('sampler')
    .lead({ again: true, signal: ending.signal }, (lease) =>
      locks.sample({ prefixes: ['order:'], every: '1s', signal: AbortSignal.any([lease.signal, ending.signal]) }),
    ),
)

const lease = await red.mutex('order:42').acquire()
const waiting = blue.mutex('order:42').acquire()

let text = ''
while (!text.includes('holdfast_line_waiting{holdfast_engine="memory",holdfast_class="order:*"} 1')) {
  await new Promise((resolve) => setTimeout(resolve, 50))
  text = await scrape()
}
assert.match(text, /^holdfast_held\{holdfast_engine="memory",holdfast_class="order:\*"\} 1$/m)
assert.match(text, /^holdfast_line_oldest_hold_seconds\{.*\} [\d.]+$/m)
await lease.release()
await (await waiting).release()
assert.match(await scrape(), /^holdfast_handoffs_total\{.*"order:\*"\} 1$/m)
console.log(
  text
    .split('\n')
    .filter((line) => line.startsWith('holdfast_line_'))
    .join('\n'),
)

ending.abort()
await Promise.allSettled(samplers)
server.close()
server.closeAllConnections()
for (const locks of fleet) await locks.close()
