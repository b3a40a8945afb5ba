/**
 * docs/errors.md and src/core/errors.ts say the same: the same classes, codes and fields. And every class can be
 * written as JSON.
 */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import * as errors from '../src/core/errors.ts'
import { lineEntry } from './unit/scripted-engine.ts'

const {
  AcquireTimeoutError,
  CachedFailureError,
  ClosedError,
  ConflictError,
  DeadlockError,
  EngineError,
  HoldfastError,
  InProgressError,
  KeyReusedError,
  LeaseLostError,
  LineFullError,
  ReplayedFailureError,
  StaleTokenError,
  SupersededError,
  StockError,
  UnknownOutcomeError,
  UnsupportedError,
} = errors

/** One of each, so that their fields can be seen. */
const samples: readonly errors.HoldfastError[] = [
  new AcquireTimeoutError('key', 1, 2, [lineEntry({ token: 7n })], { cause: new Error('down') }),
  new LeaseLostError('key', 1n, 'deadline'),
  new StaleTokenError('resource', 1n, 2n),
  new EngineError('memory', 'down', { outcome: 'unknown' }),
  new ClosedError('memory', 'closed', 'not-applied'),
  new DeadlockError('key', 'why'),
  new LineFullError('key', 1),
  new UnsupportedError('memory', 'why'),
  new ConflictError('row', 1, 'why'),
  new KeyReusedError('key'),
  new InProgressError('key', 1_000, { id: 'id', number: 1 }),
  new UnknownOutcomeError('key', { id: 'id', number: 1 }),
  new ReplayedFailureError('key', { id: 'id', number: 1 }, { name: 'Error', message: 'why', fields: {} }),
  new SupersededError('key', 1, { generation: 2 }),
  new CachedFailureError('key', { name: 'Error', message: 'why', fields: {} }),
  new StockError('stock', 'below', 'why'),
]

interface Row {
  readonly name: string
  readonly code: string
  readonly fields: readonly string[]
}

/** The rows of the table. In the last column, what stands in brackets explains a field. */
function documented(markdown: string): readonly Row[] {
  return [...markdown.matchAll(/^\| `(\w+Error)` \| `(\w+)` \|.*\|([^|]*)\|$/gm)].map(
    ([, name = '', code = '', fields = '']) => ({
      name,
      code,
      fields: [...fields.replaceAll(/\([^)]*\)/g, '').matchAll(/`(\w+)`/g)].map(([, field = '']) => field).toSorted(),
    }),
  )
}

function coded(sample: errors.HoldfastError): Row {
  const fields = Object.keys(sample).filter((field) => field !== 'name' && field !== 'code')
  return { name: sample.constructor.name, code: sample.code, fields: fields.toSorted() }
}

const byName = (a: Row, b: Row): number => a.name.localeCompare(b.name)

test('the table of errors has a row for every class, with its code and its fields', () => {
  const rows = documented(readFileSync('docs/errors.md', 'utf8'))
  expect(rows.toSorted(byName)).toEqual(samples.map(coded).toSorted(byName))
})

test('no class is left out', () => {
  const classes = Object.values(errors).filter((value) => value.prototype instanceof Error && value !== HoldfastError)
  expect(new Set(samples.map((sample) => sample.constructor))).toEqual(new Set(classes))
})

test('every error can be written as JSON: name, code, message, its fields, tokens as decimal strings', () => {
  for (const sample of samples) {
    const written = JSON.parse(JSON.stringify(sample)) as Record<string, unknown>
    const { name, code, message } = sample
    expect(written).toMatchObject({ name, code, message })
    for (const [field, value] of Object.entries(sample))
      expect([field, written[field]]).toEqual([field, typeof value === 'bigint' ? String(value) : expect.anything()])
  }
})

test('also inside of what a field has, and with the message of its cause', () => {
  const written = JSON.parse(JSON.stringify({ error: samples[0] })) as { error: Record<string, unknown> }
  expect(written.error).toMatchObject({ holders: [{ token: '7' }], cause: 'down' })
})

test('every code is used once', () => {
  expect(new Set(samples.map(({ code }) => code)).size).toBe(samples.length)
})

test('a row that differs would be seen', () => {
  expect(documented('| `DeadlockError` | `DEAD` | when | what | `key` (`no`), `other` |')).toEqual([
    { name: 'DeadlockError', code: 'DEAD', fields: ['key', 'other'] },
  ])
})
