/**
 * What npm makes of package.json, package-lock.json and README.md: nothing to warn of when a clone is set up, and no
 * dead link on the page of the package or in its recipes. scripts/package-check.mjs looks at the package itself.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'

interface Package {
  readonly version?: string
  readonly engines?: { readonly node?: string }
  readonly hasInstallScript?: boolean
  readonly optional?: boolean
}

const { engines, files, allowScripts, dependencies, optionalDependencies } = JSON.parse(
  readFileSync('package.json', 'utf8'),
) as {
  readonly engines: { readonly node: string }
  readonly files: readonly string[]
  readonly allowScripts: Readonly<Record<string, boolean>>
  readonly dependencies?: object
  readonly optionalDependencies?: object
}
const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
  readonly packages: Readonly<Record<string, Package>>
}

type Version = readonly [number, number, number]

/** Of one comparison of a range: `>=20.19`, `^18`, `~1.2`, `20.x`. */
const COMPARISON = /^(>=|<=|>|<|\^|~|=)?v?(\d+|x|\*)(?:\.(\d+|x|\*))?(?:\.(\d+|x|\*))?/

/** Whether a range of versions, as `engines` has them, admits this one. */
function admits(range: string, version: Version): boolean {
  const alternatives = range.split('||').map((each) => each.trim().replaceAll(/([<>=^~])\s+/g, '$1'))
  return alternatives.some((each) => each.split(/\s+/).every((comparison) => fits(comparison, version)))
}

function fits(comparison: string, version: Version): boolean {
  const [, operator = '', ...parts] = COMPARISON.exec(comparison) ?? []
  if (parts[0] === undefined) throw new Error(`a comparison that this test cannot read: '${comparison}'`)
  const given = parts.map(Number).filter((part) => !Number.isNaN(part))
  const [major = 0, minor = 0, patch = 0] = given
  const order = Math.sign(version[0] - major) || Math.sign(version[1] - minor) || Math.sign(version[2] - patch)
  const same = (count: number): boolean => given.slice(0, count).every((part, index) => part === version[index])
  switch (operator) {
    case '>=':
      return order >= 0
    case '>':
      return order > 0
    case '<=':
      return order <= 0
    case '<':
      return order < 0
    case '^':
      return order >= 0 && same(1)
    case '~':
      return order >= 0 && same(2)
    default:
      return same(given.length)
  }
}

/** The lowest that `engines` names, and one of each line that is maintained. */
const NODES: readonly Version[] = [
  [20, 19, 0],
  [22, 23, 3],
  [24, 15, 0],
  [26, 0, 0],
]

describe('npm ci has nothing to warn of', () => {
  test.each(NODES)('no package that we chose refuses Node %i.%i.%i', (...version) => {
    expect(admits(engines.node, version)).toBe(true)
    const refusing = Object.entries(packages).filter(
      // What is optional and does not fit is left out without a word.
      ([, { optional, engines: its }]) => optional !== true && !admits(its?.node ?? '*', version),
    )
    expect(refusing.map(([path, its]) => `${path} ${its.version}: ${its.engines?.node}`)).toEqual([])
  })

  test('every package with an install script is one that we have looked at', () => {
    const scripts = Object.keys(packages).filter((path) => packages[path]?.hasInstallScript === true)
    const names = scripts.map((path) => path.replace(/^.*node_modules\//, ''))
    expect(names.toSorted()).toEqual(Object.keys(allowScripts).toSorted())
  })

  test('ranges are read as npm reads them', () => {
    const node = [20, 19, 0] as const
    for (const range of ['*', '>=18', '>= 20.19.0', '^20.19.0 || >=22.12.0', '18 || 20', '20.x', '>=12 <21', '~20.19'])
      expect([range, admits(range, node)]).toEqual([range, true])
    for (const range of ['>=22', '^18', '>20.19.0', '18 || >=22', '>=12 <20', '~20.18', '^22.13 || >=24'])
      expect([range, admits(range, node)]).toEqual([range, false])
    expect(() => admits('newest', node)).toThrow('cannot read')
  })
})

test('installing the package installs nothing else', () => {
  expect(Object.keys({ ...dependencies, ...optionalDependencies })).toEqual([])
})

/** Where a page leads, from the root of the package. */
function linksOf(page: string): readonly string[] {
  const links = [...readFileSync(page, 'utf8').matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link)
  const paths = links.filter((link) => !/^(?:https:|#)/.test(link)).map((link) => link.replace(/#.*$/, ''))
  return paths.map((path) => join(dirname(page), path))
}

const recipes = readdirSync(join('docs', 'recipes')).map((name) => join('docs', 'recipes', name))

test.each(['README.md', ...recipes])(
  '%s of an installed package leads to files that are in it, or to the web',
  (page) => {
    const isPacked = (path: string): boolean => files.some((each) => path === each || path.startsWith(`${each}/`))
    const paths = linksOf(page)
    expect(paths.length).toBeGreaterThan(0)
    expect(paths.filter((path) => !existsSync(path) || !isPacked(path))).toEqual([])
  },
)
