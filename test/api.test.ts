/**
 * The public surface is a file, api.snapshot.txt: growing or changing it is a decision that shows in a review.
 * `npm run api:update` writes it anew. It is made from what `npm run build` emits.
 */
import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { statements } from '../site/declarations.ts'
import { Surface } from './surface.ts'

/** What is behind all doors of the package. */
function publicSurface(): Surface {
  const { name, exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    name: string
    exports: Record<string, { types?: string }>
  }
  const surface = new Surface()
  for (const [door, { types }] of Object.entries(exports)) {
    if (types === undefined) continue
    expect(existsSync(types), `${types} is there after npm run build`).toBe(true)
    surface.addDoor(door.replace(/^\./, name), types)
  }
  return surface
}

test('the public surface is what api.snapshot.txt says', async () => {
  await expect(publicSurface().toString()).toMatchFileSnapshot('api.snapshot.txt')
})

test('every public name has a comment that editors show', () => {
  expect(publicSurface().undocumented()).toEqual([])
})

test('holdfast/engine has every type that the author of an engine or of a store has to name', () => {
  expect(new Surface().lackingFor('Engine', 'dist/src/engine.d.ts')).toEqual([])
})

describe('the surface of a module', () => {
  const files: Record<string, string> = {
    'index.d.ts': `/** The door. */\nexport { type Lock, open as connect } from './lock.ts';\nexport * from './more.ts';\n`,
    'lock.d.ts': [
      `import type { Hidden } from './hidden.ts';`,
      `import { type Outside } from 'node:somewhere';`,
      `export interface Lock {\n    /** Why; and how { */\n    readonly url: 'redis://x' | 'a;b';\n    take(hidden: Hidden): Outside;\n}`,
      `export declare class Unseen {\n    #private;\n}`,
      `export declare function open(a: string): Lock;\nexport declare function open(a: number, b: {\n    c: 1;\n}): Lock;\n`,
    ].join('\n'),
    'hidden.d.ts': `export declare class Hidden {\n    #private;\n    private secret;\n    told: boolean;\n}\n`,
    'more.d.ts': `type Local = \n/** one */\n{\n    a: 1;\n}\n/** two */\n | {\n    b: 2;\n};\nexport declare const more: Local;\nexport {};\n`,
  }
  const surfaceOf = (changes: Record<string, string> = {}): string => {
    const surface = new Surface((file) => ({ ...files, ...changes })[file] ?? expect.fail(`no ${file}`))
    surface.addDoor('holdfast', 'index.d.ts')
    return surface.toString()
  }

  test('has every exported name, overload and reachable type, and nothing else', () => {
    expect(surfaceOf()).toBe(
      [
        'holdfast:\n    Lock\n    connect\n    more',
        '(not exported) class Hidden {\n    told: boolean;\n}',
        '(not exported) type Local =\n{\n    a: 1;\n}\n | {\n    b: 2;\n};',
        `interface Lock {\n    readonly url: 'redis://x' | 'a;b';\n    take(hidden: Hidden): Outside;\n}`,
        'const more: Local;',
        'function open(a: string): Lock;\nfunction open(a: number, b: {\n    c: 1;\n}): Lock;\n',
      ].join('\n\n'),
    )
  })

  test('changes with a signature and with a type behind it, not with comments or private members', () => {
    const hidden = files['hidden.d.ts'] as string
    expect(surfaceOf({ 'hidden.d.ts': hidden.replace('boolean', 'number') })).not.toBe(surfaceOf())
    expect(surfaceOf({ 'hidden.d.ts': `/** New. */\n${hidden.replace('secret', 'other')}` })).toBe(surfaceOf())
  })

  test('knows which types behind a name are not exported beside it', () => {
    const surface = new Surface((file) => files[file] ?? expect.fail(`no ${file}`))
    expect(surface.lackingFor('Lock', 'index.d.ts')).toEqual(['Hidden'])
    expect(surface.lackingFor('Unseen', 'index.d.ts')).toEqual(['Unseen'])
  })

  test('knows which exported names have no comment of their own', () => {
    const surface = new Surface((file) => files[file] ?? expect.fail(`no ${file}`))
    surface.addDoor('holdfast', 'index.d.ts')
    expect(surface.undocumented().map((id) => id.split(' ')[1])).toEqual(['more', 'Lock', 'open'])
    const lock = `/** A letter. */\n${(files['lock.d.ts'] as string).replace('export interface', '/** Told. */\nexport interface')}`
    const told = new Surface((file) => ({ ...files, 'lock.d.ts': lock })[file] ?? '')
    told.addDoor('holdfast', 'index.d.ts')
    expect(told.undocumented().map((id) => id.split(' ')[1])).toEqual(['more', 'open'])
  })

  test('has what stands behind an addition to the types of another package', () => {
    const added = `declare module 'fastify' {\n    interface FastifyInstance {\n        locks: string;\n    }\n}`
    const lock = `/** The file. */\n\n${added}\n${files['lock.d.ts']}`
    expect(surfaceOf({ 'lock.d.ts': lock })).toBe(surfaceOf())
  })

  test('splits what tsc writes into statements', () => {
    expect(
      statements(
        `export interface A extends B<{\n    c: 1;\n}> {\n    d: "}";\n}\nexport type E = \`\${number}s\`;\n`,
      ).map(({ text }) => text),
    ).toEqual([`export interface A extends B<{\n    c: 1;\n}> {\n    d: "}";\n}`, `export type E = \`\${number}s\`;`])
  })
})
