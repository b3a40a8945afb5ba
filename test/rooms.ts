/**
 * The rooms of `src/`, as data: which room may import which. rooms.test.ts reads every import, `import type` included,
 * and keeps ARCHITECTURE.md equal to this table.
 */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { repositoryFiles } from './tidy.ts'

/** A room, and the rooms that its files may import besides their own. Files directly in `src/` are rooms, too. */
export const ROOMS: Readonly<Record<string, readonly string[]>> = {
  core: [],
  primitives: ['core'],
  'clients/shared': ['core'],
  'clients/redis': ['core', 'clients/shared'],
  'clients/postgres': ['core', 'clients/shared'],
  'clients/mysql': ['clients/shared'],
  'clients/etcd': ['core', 'clients/shared'],
  'clients/zookeeper': ['core', 'clients/shared'],
  'clients/mongodb': ['core', 'clients/shared'],
  'clients/sqlite': ['core', 'clients/shared'],
  transactions: ['core', 'clients/shared', 'clients/postgres', 'clients/mysql', 'clients/sqlite'],
  guards: ['core', 'clients/redis', 'clients/postgres', 'clients/mongodb', 'clients/sqlite', 'transactions'],
  'engines/shared': ['core', 'clients/shared'],
  'engines/memory': ['core', 'engines/shared'],
  'engines/sqlite': ['core', 'clients/sqlite', 'engines/shared', 'transactions'],
  'engines/redis': ['core', 'clients/redis', 'engines/shared'],
  'engines/redlock': ['core', 'clients/shared', 'clients/redis', 'engines/shared'],
  'engines/postgres': ['core', 'clients/shared', 'clients/postgres', 'engines/shared', 'transactions'],
  'engines/postgres-advisory': ['core', 'clients/shared', 'clients/postgres', 'engines/shared'],
  'engines/mysql': ['core', 'clients/shared', 'clients/mysql', 'engines/shared', 'transactions'],
  'engines/etcd': ['core', 'clients/shared', 'clients/etcd', 'engines/shared'],
  'engines/zookeeper': ['core', 'clients/shared', 'clients/zookeeper', 'engines/shared'],
  'engines/mongodb': ['core', 'clients/shared', 'clients/mongodb', 'engines/shared'],
  locks: ['core', 'primitives'],
  store: ['core', 'locks'],
  recipes: ['core', 'locks', 'store'],
  connect: ['core', 'locks', 'engines/*'],
  frameworks: ['core', 'locks', 'connect', 'recipes'],
  index: ['core', 'primitives', 'locks', 'connect'],
  engine: ['core'],
  telemetry: ['core'],
  otel: ['core', 'telemetry'],
  prometheus: ['core', 'telemetry'],
  testing: ['core', 'engines/memory'],
  cli: ['*'],
}

export interface Import {
  readonly from: string
  readonly to: string
}

/** Every import of `src/`, by paths below it. Imports of packages are left out. */
export function importsOfSource(): readonly Import[] {
  return sourceFiles().flatMap((path) => {
    const text = readFileSync(path, 'utf8')
    const specifiers = [...text.matchAll(/(?:\bfrom\s+|\bimport\s*\(\s*|^import\s+)'(\.[^']+)'/gm)]
    return specifiers.map(([, specifier = '']) => ({ from: below(path), to: below(join(dirname(path), specifier)) }))
  })
}

export function sourceFiles(): readonly string[] {
  return repositoryFiles('src').filter((path) => path.endsWith('.ts'))
}

const below = (path: string): string => path.replace(/^src\//, '')

/** The room of a file: the longest name in the table that its path begins with. */
export function roomOf(file: string): string {
  const found = Object.keys(ROOMS).filter((room) => file === `${room}.ts` || file.startsWith(`${room}/`))
  return found.sort((a, b) => b.length - a.length)[0] ?? `no room for ${file}`
}

/** What breaks the table, as `file -> file`. */
export function forbidden(imports: readonly Import[]): readonly string[] {
  const wrong = imports.filter(({ from, to }) => !mayImport(roomOf(from), roomOf(to)))
  return [...new Set(wrong.map(({ from, to }) => `${from} -> ${to}`))].sort()
}

/** What the table allows, and no file does, as `room -> room`. */
export function unused(imports: readonly Import[]): readonly string[] {
  const used = imports.map(({ from, to }) => ({ from: roomOf(from), to: roomOf(to) }))
  return Object.entries(ROOMS).flatMap(([room, allowed]) =>
    allowed
      .filter((one) => !used.some(({ from, to }) => from === room && to !== room && allows(one, to)))
      .map((one) => `${room} -> ${one}`),
  )
}

function mayImport(from: string, to: string): boolean {
  if (from === to) return true
  return (ROOMS[from] ?? []).some((allowed) => allows(allowed, to))
}

function allows(allowed: string, room: string): boolean {
  return allowed === '*' || allowed === room || (allowed.endsWith('/*') && room.startsWith(allowed.slice(0, -1)))
}

/** Files that import each other in a circle, each circle once, beginning with the first by name. */
export function cycles(imports: readonly Import[]): readonly string[] {
  const edges = new Map<string, Set<string>>()
  for (const { from, to } of imports) edges.set(from, (edges.get(from) ?? new Set()).add(to))
  const found = new Set<string>()
  const done = new Set<string>()
  const visit = (file: string, path: readonly string[]): void => {
    const at = path.indexOf(file)
    if (at >= 0) {
      found.add(rotated(path.slice(at)).join(' -> '))
      return
    }
    if (done.has(file)) return
    for (const next of edges.get(file) ?? []) visit(next, [...path, file])
    done.add(file)
  }
  for (const file of edges.keys()) visit(file, [])
  return [...found].sort()
}

function rotated(circle: readonly string[]): readonly string[] {
  const start = circle.indexOf([...circle].sort()[0] as string)
  return [...circle.slice(start), ...circle.slice(0, start)]
}

/** The table as it stands in ARCHITECTURE.md. */
export function picture(): string {
  const width = Math.max(...Object.keys(ROOMS).map((room) => room.length))
  return Object.entries(ROOMS)
    .map(([room, allowed]) => `${room.padEnd(width)} -> ${described(allowed)}`.trimEnd())
    .join('\n')
}

function described(allowed: readonly string[]): string {
  if (allowed.length === 0) return 'nothing'
  return allowed.includes('*') ? 'everything' : allowed.join(', ')
}
