/** Programs without the packages that Holdfast leaves to its users: each says what to install, before it serves. */
import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { builtModule } from '../built.ts'

let folder: string
beforeAll(() => {
  builtModule('src/index.ts')
  folder = mkdtempSync(join(tmpdir(), 'holdfast-missing-'))
  cpSync('dist/src', join(folder, 'src'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
})
afterAll(() => rmSync(folder, { recursive: true }))

/** What the program prints. It finds these packages, and no others. */
async function printed(program: string, ...packages: readonly string[]): Promise<readonly string[]> {
  for (const name of packages) {
    const place = join(folder, 'node_modules', name)
    mkdirSync(dirname(place), { recursive: true })
    symlinkSync(resolve('node_modules', name), place)
  }
  writeFileSync(join(folder, 'program.mjs'), program)
  const { stdout } = await promisify(execFile)(process.execPath, [join(folder, 'program.mjs')])
  return stdout.trim().split('\n')
}

test('croner is loaded only for patterns; where it is missing, the message says how to get it', async () => {
  const program = `
    import { createLocks } from './src/index.js'
    import { memory } from './src/engines/memory/index.js'
    import { cron } from './src/recipes/cron/index.js'
    const locks = createLocks(memory())
    const jobs = cron(locks)
    jobs.add('slots', { every: '100ms' }, () => { console.log('ran'); void jobs.close() })
    try { jobs.add('nightly', '0 3 * * *', () => {}) } catch (error) { console.log(error.message) }`
  expect(await printed(program)).toEqual([
    "the cron pattern of 'nightly' needs a package: npm install croner; { every: '1h' } needs none",
    'ran',
  ])
})

test('an application of Nest with @OncePerTick does not start without croner', async () => {
  const program = `
    import 'reflect-metadata'
    import { Module } from '@nestjs/common'
    import { NestFactory } from '@nestjs/core'
    import { HoldfastModule, OncePerTick } from './src/frameworks/nest/index.js'
    class Reports { async nightly() {} }
    const descriptor = Object.getOwnPropertyDescriptor(Reports.prototype, 'nightly')
    OncePerTick()(Reports.prototype, 'nightly', descriptor)
    Object.defineProperty(Reports.prototype, 'nightly', descriptor)
    // As @Cron does, above it.
    Reflect.defineMetadata('SCHEDULE_CRON_OPTIONS', { cronTime: '0 3 * * *' }, Reports.prototype.nightly)
    class App {}
    Module({ imports: [HoldfastModule.forRoot({ url: 'memory:' })], providers: [Reports] })(App)
    try {
      await NestFactory.createApplicationContext(App, { logger: false, abortOnError: false })
      console.log('started')
    } catch (error) {
      console.log(error.message)
    }
    process.exit()`
  expect(await printed(program, '@nestjs/common', '@nestjs/core', 'reflect-metadata', 'rxjs')).toEqual([
    "the cron pattern of 'Reports.nightly' needs a package: npm install croner",
  ])
})

test('connect() refuses the embedded default where there is no SQLite, and says how to get one', async (context) => {
  if ((await loadDriver()).name.startsWith('node:')) return context.skip('this Node brings a SQLite')
  const program = `
    import { connect } from './src/index.js'
    const say = (error) => console.log(error.name, error.transient, error.message)
    await connect('sqlite:locks.db').then(() => console.log('connected'), say)`
  const [said] = await printed(program)
  expect(said).toMatch(/^EngineError false sqlite: Node .*: npm install @photostructure\/sqlite@1, or use Node/)
})

test.each([
  { engine: 'redis', url: 'redis://127.0.0.1:1' },
  { engine: 'redlock', url: 'redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3' },
])('the URL of $engine needs ioredis; where it is missing, the message names this engine', async ({ engine, url }) => {
  const program = `
    import { connect } from './src/index.js'
    const say = (error) => console.log(error.engine, error.message)
    await connect('${url}').then(() => console.log('connected'), say)`
  expect(await printed(program)).toEqual([`${engine} ${engine}: its client is not installed: npm install ioredis`])
})
