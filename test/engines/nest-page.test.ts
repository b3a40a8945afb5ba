/**
 * The application of docs/nest-application.md: compiled with the flags of the page, and run in two processes on SQLite.
 * One payment is sent to both, one of them is killed in the middle, and the other is told to end in the middle. On the
 * Nest that this repository has, and on the next one.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { type IncomingMessage, request } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { builtModule } from '../built.ts'
import { blockWith } from '../documented.ts'
import { installFromNpm, keptFolder } from '../servers/kept.ts'
import { lastLine, Missing } from '../servers/programs.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT_MS = 90_000
const PAGE = 'docs/nest-application.md'
/** Inside of the package, where `holdfast` is found by its own name. */
const OWN = join('dist', 'nest-page')
/** A project of its own, with other packages. */
const PROJECT = join('dist', 'nest-page-12')
const NEST_12: Readonly<Record<string, string>> = {
  '@nestjs/common': '12.5.0',
  '@nestjs/core': '12.5.0',
  '@nestjs/platform-express': '12.5.0',
  '@nestjs/schedule': '12.0.2',
  'reflect-metadata': '0.2.2',
  croner: '11.0.0',
  rxjs: '7.8.2',
}

/** A process of the application, and what it has printed. */
class ShopProcess {
  readonly child: ChildProcess
  said = ''

  constructor(program: string, folder: string, env: Readonly<Record<string, string>>) {
    const more = { HOLDFAST_URL: `sqlite:${join(folder, 'locks.db')}`, PORT: '0', NO_COLOR: '1', ...env }
    this.child = spawn(process.execPath, [program], { env: { ...process.env, ...more } })
    for (const stream of [this.child.stdout, this.child.stderr])
      stream?.on('data', (bytes: Buffer) => {
        this.said += bytes.toString()
      })
  }

  /** Resolves when it has printed this: what the first group has matched. */
  async until(pattern: RegExp): Promise<string> {
    const found = (): string => {
      const [, part] = pattern.exec(this.said) ?? []
      if (part === undefined) throw new Error(`not said yet: ${pattern} in ${this.said}`)
      return part
    }
    return await vi.waitFor(found, { timeout: LIMIT_MS / 3, interval: 20 })
  }

  async port(): Promise<string> {
    return await this.until(/listening on \S+:(\d+)/)
  }

  async end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const { child } = this
    if (child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill(signal)
    await gone
  }
}

let folder: string
const running: ShopProcess[] = []

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-nest-page-'))
})

afterEach(async () => {
  for (const shop of running.splice(0)) await shop.end('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})

/** The page as a program in this folder. */
function compiledIn(project: string): string {
  mkdirSync(project, { recursive: true })
  writeFileSync(join(project, 'main.ts'), blockWith(PAGE, '@Module(').code)
  const [, config = ''] = /```json\n(.*?)```/s.exec(readFileSync(PAGE, 'utf8')) ?? []
  writeFileSync(join(project, 'tsconfig.json'), config)
  execFileSync(join('node_modules', '.bin', 'tsc'), ['-p', project], { stdio: 'inherit' })
  return join(project, 'main.js')
}

async function findNest12(): Promise<{ readonly packages: string } | Missing> {
  const wanted = Object.entries(NEST_12).map(([name, version]) => `${name}@${version}`)
  try {
    const kept = await keptFolder(`nest@${NEST_12['@nestjs/core']}`, (empty) => installFromNpm(empty, wanted))
    return { packages: join(kept, 'node_modules') }
  } catch (error) {
    return new Missing(`no Nest 12 (${lastLine(error)}). It comes from npm, which has to be reached`)
  }
}

/** Holdfast is copied: a link would find the Nest of this repository. */
function makeProject(packages: string): void {
  rmSync(PROJECT, { recursive: true, force: true })
  const copy = join(PROJECT, 'node_modules', 'holdfast')
  cpSync(join('dist', 'src'), join(copy, 'dist', 'src'), { recursive: true })
  cpSync('package.json', join(copy, 'package.json'))
  writeFileSync(join(PROJECT, 'package.json'), '{ "type": "module" }')
  for (const name of Object.keys(NEST_12)) {
    const place = join(PROJECT, 'node_modules', name)
    mkdirSync(dirname(place), { recursive: true })
    symlinkSync(join(packages, name), place)
  }
}

async function ask(shop: ShopProcess, path: string, key?: string, cents = 100): Promise<Response> {
  const headers = { 'content-type': 'application/json', connection: 'close' }
  const url = `http://127.0.0.1:${await shop.port()}/${path}`
  if (path === 'prices' || path === 'ready') return await fetch(url, { headers })
  const keyed = { ...headers, ...(key === undefined ? {} : { 'idempotency-key': key }) }
  return await fetch(url, { method: 'POST', headers: keyed, body: JSON.stringify({ cents }) })
}

/** Resolves when the payment was sent, which `fetch` does not tell. `answered` is its status. */
async function send(shop: ShopProcess, key: string, cents: number): Promise<{ readonly answered: Promise<unknown> }> {
  const headers = { 'content-type': 'application/json', connection: 'close', 'idempotency-key': key }
  const payment = request({ port: await shop.port(), path: '/payments', method: 'POST', headers })
  const answered = once(payment, 'response').then(([response]) => (response as IncomingMessage).resume().statusCode)
  payment.end(JSON.stringify({ cents }))
  await once(payment, 'finish')
  return { answered }
}

async function expectAll(program: string): Promise<void> {
  const start = (chargeMs: string): ShopProcess => {
    const shop = new ShopProcess(program, folder, { CHARGE_MS: chargeMs })
    running.push(shop)
    return shop
  }
  // The first one has a provider that never answers.
  const [hanging, shop] = [start('60000'), start('300')]
  expect(await (await ask(shop, 'ready')).json()).toMatchObject({ holdfast: { status: 'up' } })

  const both = await Promise.all([ask(shop, 'payments', 'k'), ask(shop, 'payments', 'k')])
  const bodies = await Promise.all(both.map((response) => response.json()))
  expect(both.map(({ status }) => status)).toEqual([201, 201])
  expect(bodies[0]).toEqual(bodies[1])
  expect(both.filter(({ headers }) => headers.has('idempotent-replayed'))).toHaveLength(1)
  expect((await ask(hanging, 'payments', 'k')).headers.get('idempotent-replayed')).toBe('true')
  expect((await ask(shop, 'payments', 'k', 200)).status).toBe(422)
  expect((await ask(shop, 'payments')).status).toBe(400)

  const prices = await Promise.all([hanging, shop].map(async (each) => (await ask(each, 'prices')).json()))
  expect(prices).toEqual([{ seat: 42 }, { seat: 42 }])
  expect((hanging.said + shop.said).match(/computes prices/g)).toHaveLength(1)
  expect((await ask(shop, 'import')).status).toBe(201)

  const broken = ask(hanging, 'payments', 'crash').catch(() => 'broken')
  const id = await hanging.until(/charges 100, (\w+)/)
  const retry = ask(shop, 'payments', 'crash')
  await hanging.end('SIGKILL')
  expect(await broken).toBe('broken')
  const taken = await retry
  expect([taken.status, await taken.json()], 'by the same id').toEqual([201, { cents: 100, id }])

  const last = await send(shop, 'last', 300)
  await shop.until(/charges (300)/)
  const duplicate = await send(shop, 'last', 300)
  // Connections are accepted in the order in which they were made: when this one is answered, that one is.
  await ask(shop, 'ready')
  await shop.end('SIGTERM')
  expect(await Promise.all([last.answered, duplicate.answered])).toEqual([201, 201])
}

test('the page installs every package that its program and its compiler need', () => {
  const { code } = blockWith(PAGE, '@Module(')
  const imported = [...code.matchAll(/^import .*?'((?:@[^/']+\/)?[^/'.:\s]+)[/']/gm)].map(([, name]) => name)
  const commands = [...readFileSync(PAGE, 'utf8').matchAll(/^npm install (.*?)(?: +#.*)?$/gm)].map(([, rest]) => rest)
  const installed = commands.join(' ').split(' ')
  expect(imported).toContain('holdfast')
  for (const name of [...imported, 'croner', 'rxjs', 'typescript', '@types/node']) expect(installed).toContain(name)
})

test('on Nest 11, the application of the page does what the page says', { timeout: LIMIT_MS }, async () => {
  builtModule('src/index.ts')
  await expectAll(compiledIn(OWN))
})

await describeServer('on Nest 12', findNest12, ({ packages }) => {
  test('the application of the page does what the page says', { timeout: LIMIT_MS }, async () => {
    builtModule('src/index.ts')
    makeProject(packages)
    await expectAll(compiledIn(PROJECT))
  })
})
