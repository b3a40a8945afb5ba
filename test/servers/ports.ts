/**
 * Free ports on loopback, for one test process among several.
 *
 * They are drawn from below the range out of which systems give ports to outgoing connections (from 32768 on Linux,
 * 49152 elsewhere). A server that is killed and started again therefore finds its port still free. Other test processes
 * do not take it meanwhile: each port has a file in a folder that they share, which names the process that has it, and
 * counts for as long as that process lives.
 */
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const FROM = 20_000
const TO = 32_000

/** Other users of this machine have a folder of their own; their servers are found by trying the port. */
const folder = join(tmpdir(), `holdfast-ports-${process.getuid?.() ?? 'user'}`)

/** A free port; with `beside`, one for which the port that many above it is free as well, and stays so. */
export async function freePort(beside = 0): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const port = randomInt(FROM, TO - beside)
    const ports = [...new Set([port, port + beside])]
    if (ports.every(claim) && (await Promise.all(ports.map(isFree))).every(Boolean)) return port
  }
  throw new Error(`no free port between ${FROM} and ${TO}`)
}

/**
 * Whether the port is now ours. Each process writes its own file first and looks at the others' afterwards: of two that
 * draw the same port at once, at least one sees the other, and draws again.
 */
function claim(port: number): boolean {
  mkdirSync(folder, { recursive: true })
  const ours = `${port}.${process.pid}`
  if (claims().includes(ours)) return false
  writeFileSync(join(folder, ours), '')
  const taken = claims().some((name) => name.startsWith(`${port}.`) && name !== ours)
  if (taken) rmSync(join(folder, ours))
  return !taken
}

/** Those of processes that live. What dead ones left is removed. */
function claims(): readonly string[] {
  return readdirSync(folder).filter((name) => {
    const lives = isAlive(Number(name.slice(name.indexOf('.') + 1)))
    if (!lives) rmSync(join(folder, name), { force: true })
    return lives
  })
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
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
