/**
 * The repository keeps its own rules. Each rule of tidy.ts is applied to every file it is for, and is shown to bite.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { declaredNames, isFor, readingOrderProblems, repositoryFiles, rules, withoutComments } from './tidy.ts'

const files = repositoryFiles()

describe.each(rules)('$name', (rule) => {
  test('in every file', () => {
    const problems = files
      .filter((path) => isFor(rule, path))
      .flatMap((path) => rule.find(readFileSync(path, 'utf8'), path).map((problem) => `${path}: ${problem}`))
    expect(problems).toEqual([])
  })

  test('finds its bad example and leaves its good one', () => {
    expect(rule.find(rule.bad, 'README.md')).toHaveLength(1)
    expect(rule.find(rule.good, 'README.md')).toEqual([])
  })

  test('is for some file that could exist', () => {
    const paths = ['src/core/lease.ts', 'test/unit/lease.test.ts', 'docs/start.md', 'README.md']
    expect(paths.some((path) => isFor(rule, path))).toBe(true)
  })
})

test('the name of a class, of an interface or of a type stands for one thing in src/', () => {
  const seen = new Map<string, number>()
  for (const path of files.filter((each) => /^src\/.*\.ts$/.test(each)))
    for (const name of declaredNames(readFileSync(path, 'utf8'))) seen.set(name, (seen.get(name) ?? 0) + 1)
  const shared = [...seen].filter(([, times]) => times > 1).map(([name]) => name)
  expect(shared).toEqual([])
  expect(declaredNames('class A {}\nexport interface B {}\n/*\ntype X = 1\n*/\ntype C = 1\ntype A = 2')).toEqual([
    'A',
    'B',
    'C',
    'A',
  ])
})

describe('the order in which to read an engine', () => {
  /** What is made of lua/ and sql/ is not read. */
  const MADE = ['scripts.ts', 'sources.ts']
  const engines = readdirSync('src/engines').filter((name) => name !== 'shared')

  test.each(engines)('of %s leaves nothing of its folder out', (engine) => {
    const folder = join('src/engines', engine)
    const names = readdirSync(folder).filter((name) => name !== 'index.ts' && !MADE.includes(name))
    expect(readingOrderProblems(readFileSync(join(folder, 'index.ts'), 'utf8'), names)).toEqual([])
  })

  test('is complete when it names each file, and each folder by a file in it', () => {
    const letter = '/** a.ts is first. Read in this order: b.ts, sql/c.sql, ../shared/d.ts */ // e.ts'
    expect(readingOrderProblems(letter, ['b.ts', 'sql'])).toEqual([])
    expect(readingOrderProblems(letter, ['a.ts', 'e.ts', 'sql'])).toEqual([
      'a.ts is not in the order',
      'e.ts is not in the order',
      'b.ts is in the order, and not there',
    ])
  })
})

test('comments are told from strings', () => {
  expect(withoutComments(`a('//x') // y\n/* b\n*/ c("/*")`)).toBe(`a('//x')     \n    \n   c("/*")`)
})

test('the files of the repository are looked at, and those made from them are not', () => {
  expect(files).toContain('src/core/engine.ts')
  expect(files.filter((path) => path.startsWith('node_modules') || path.startsWith('dist'))).toEqual([])
})

interface Locked {
  readonly resolved?: string
  readonly optionalDependencies?: Record<string, string>
}

/**
 * Optional packages that a locked package names and the lock file lacks: `npm install` forgives that, `npm ci` does
 * not.
 */
function unlocked(packages: Readonly<Record<string, Locked>>): readonly string[] {
  return Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter(
      (name) => ![path, ''].some((at) => join(at, 'node_modules', name) in packages),
    ),
  )
}

describe('package-lock.json', () => {
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { packages: Record<string, Locked> }

  test('has every package that npm ci will ask for, those of other platforms too', () => {
    expect(unlocked({ 'node_modules/a': { optionalDependencies: { 'a-win32': '1.0.0' } } })).toEqual(['a-win32'])
    expect(unlocked(packages)).toEqual([])
  })

  test('names no host', () => {
    expect(Object.values(packages).flatMap(({ resolved = [] }) => resolved)).toEqual([])
  })
})

test('nothing runs when the package is installed', () => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> }
  expect(Object.keys(scripts).filter((name) => /^(?:pre|post)?install$/.test(name))).toEqual([])
})
