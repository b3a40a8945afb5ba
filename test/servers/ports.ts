/**
 * Free ports on loopback.
 *
 * They are drawn from below the range out of which systems give ports to outgoing connections (from 32768 on Linux,
 * 49152 elsewhere). A server that is killed and started again therefore finds its port still free, and two test
 * processes that ask at the same moment hardly ever draw the same one.
 */
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'

const FROM = 20_000
const TO = 32_000

/** What was given away may not be in use yet. */
const given = new Set<number>()

/** A free port; with `beside`, one for which the port that many above it is free as well, and stays so. */
export async function freePort(beside = 0): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const port = randomInt(FROM, TO - beside)
    const ports = [...new Set([port, port + beside])]
    if (ports.some((one) => given.has(one))) continue
    for (const one of ports) given.add(one)
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return port
  }
  throw new Error(`no free port between ${FROM} and ${TO}`)
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer()
  try {
    probe.listen(port, '127.0.0.1')
    await once(probe, 'listening')
    return true
  } catch {
    return false
  } finally {
    probe.close()
  }
}
