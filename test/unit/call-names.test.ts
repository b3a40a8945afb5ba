/**
 * A call that failed says which engine and which call it was, in one form, whatever the server: nothing listens at
 * these addresses, and the engine of the file has been closed.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MongoClient } from 'mongodb'
import { afterAll, describe, expect, onTestFinished, test } from 'vitest'
import { openEngine } from '../../src/connect.ts'
import type { Claim, Engine } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { guard, type MongodbGuard } from '../../src/guards/mongodb.ts'
import { ENGINE_NAMES } from '../engine-names.ts'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-names-'))
afterAll(() => rmSync(folder, { recursive: true }))

const GONE: Readonly<Record<string, string>> = {
  sqlite: `sqlite:${join(folder, 'locks.db')}`,
  redis: 'redis://127.0.0.1:1',
  redlock: 'redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3',
  postgres: 'postgres://app@127.0.0.1:1/app',
  'postgres-advisory': 'postgres-advisory://app@127.0.0.1:1/app',
  mysql: 'mysql://app@127.0.0.1:1/app',
  etcd: 'etcd://127.0.0.1:1',
  zookeeper: 'zookeeper://127.0.0.1:1',
  mongodb: 'mongodb://127.0.0.1:1/app?serverSelectionTimeoutMS=500',
}

const claim: Claim = {
  ...{ key: 'key', id: '0123456789abcdef0123456789abcdef', holder: 'this test' },
  ...{ weight: 1, limit: 1, ttlMs: 30_000, wait: false },
}

describe('the guard of MongoDB, whose server is gone', () => {
  const calls: Readonly<Record<string, (guarded: MongodbGuard) => Promise<unknown>>> = {
    setup: (guarded) => guarded.setup(),
    list: (guarded) => guarded.list(),
    reset: (guarded) => guarded.reset('order', 1n),
    forget: (guarded) => guarded.forget(),
  }
  test.each(Object.entries(calls))('says so of %s', async (call, ask) => {
    const client = new MongoClient('mongodb://127.0.0.1:1/app?serverSelectionTimeoutMS=200')
    onTestFinished(() => client.close())
    const error = await refusal(ask(guard({ client })))
    expect(error).toBeInstanceOf(EngineError)
    expect(error).toMatchObject({ engine: 'mongodb', transient: true, cause: { name: 'MongoServerSelectionError' } })
    expect((error as EngineError).message).toMatch(new RegExp(`^mongodb: guard ${call}: .*ECONNREFUSED`))
  })
})

/** Some refuse the call as a whole, others each item of it. */
async function refusal(asked: Promise<unknown>): Promise<unknown> {
  const answer = await asked.catch((error: unknown) => error)
  const [first] = Array.isArray(answer) ? (answer as readonly { readonly error?: unknown }[]) : []
  return first === undefined ? answer : (first.error ?? first)
}

async function firstOf(lines: AsyncIterable<unknown>): Promise<unknown> {
  return await lines[Symbol.asyncIterator]().next()
}

test('every engine that is not of its process is tried here', () => {
  expect(['memory', ...Object.keys(GONE)].toSorted()).toEqual(ENGINE_NAMES.toSorted())
})

type Calls = Readonly<Record<string, (engine: Engine) => Promise<unknown>>>

const CALLS: Calls = {
  enter: (engine) => engine.enter([claim]),
  leave: (engine) => engine.leave([claim]),
  inspect: (engine) => engine.inspect('key'),
  list: (engine) => firstOf(engine.list('')),
  get: (engine) => (engine.store as Store).get(['key']),
}

describe.each(Object.entries(GONE))('%s, whose server is gone', (name, url) => {
  test.each(Object.entries(CALLS))('says so of %s', async (call, ask) => {
    const engine = await openEngine(url)
    try {
      if (name === 'sqlite') await engine[Symbol.asyncDispose]()
      if (call === 'get' && engine.store === undefined) return
      // Without a session the server has nothing of ours: there is nothing to leave.
      if (call === 'leave' && name === 'postgres-advisory') return
      const error = await refusal(ask(engine))
      expect(error).toBeInstanceOf(EngineError)
      const { message } = error as EngineError
      expect(message.startsWith(`${name}: ${call}: `), message).toBe(true)
      expect(message.slice(name.length).match(/\b(?:enter|leave|inspect|list|get): /g), message).toHaveLength(1)
    } finally {
      await engine[Symbol.asyncDispose]()
    }
  })
})
