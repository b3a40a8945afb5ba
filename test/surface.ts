/**
 * The public surface as text, from the emitted declarations: for each door of package.json the names behind it, then
 * every declaration that can be reached from them, once, without comments and private members. Types that are reachable
 * but not exported are surface too, and are marked.
 *
 * It reads only the regular shape that tsc writes, so that it needs no compiler: one statement after the other, closed
 * by `;`, or by a `}` on a line's end.
 */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** A name of another module. */
interface Elsewhere {
  readonly file: string
  readonly name: string
}

interface Statement {
  readonly text: string
  /** Whether a comment for users stands before it. */
  readonly documented: boolean
}

interface Module {
  /** What is declared here with a comment for users. */
  readonly documented: Set<string>
  /** What is declared here; several texts for overloads. */
  readonly declared: Map<string, string[]>
  readonly imported: Map<string, Elsewhere>
  /** Public name to local name, or to another module's. */
  readonly exported: Map<string, string | Elsewhere>
  /** Modules exported with `*`. */
  readonly stars: string[]
}

const BODY = /^(?:export )?(?:declare )?(?:abstract )?(?:class|interface|enum|namespace) /
const DECLARATION =
  /^(export )?(?:default )?(?:declare )?(?:abstract )?(?:class|interface|enum|namespace|type|function|const|let) ([\w$]+)/
const LIST = /^(import|export) (?:type )?\{([^}]*)\}(?: from '([^']+)')?/
const STAR = /^export (?:type )?\* from '([^']+)'/

/** Comments, strings and single characters. */
const TOKEN = /\/\*.*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|./gs

/** The statements of a declaration file, without comments. */
export function statements(text: string): readonly string[] {
  return documentedStatements(text).map((statement) => statement.text)
}

function documentedStatements(text: string): readonly Statement[] {
  const found: Statement[] = []
  let statement = ''
  let documented = false
  let depth = 0
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    // The letter to the reader of a file is followed by an empty line, or by what the file imports.
    if (token.startsWith('/**') && statement.trim() === '') documented = text[index + token.length + 1] !== '\n'
    if (token.startsWith('/*') || token.startsWith('//')) continue
    statement += token
    if (token === '{' || token === '(' || token === '[') depth += 1
    if (token === '}' || token === ')' || token === ']') depth -= 1
    const endsLine = text[index + 1] === '\n' || index + 1 === text.length
    const closesBody = token === '}' && endsLine && BODY.test(statement.trimStart())
    if (depth === 0 && (token === ';' || closesBody)) {
      found.push({ text: tidy(statement), documented })
      statement = ''
      documented = false
    }
  }
  return found
}

/** Without empty lines, private members, and what every declaration file repeats. */
function tidy(statement: string): string {
  const lines = statement
    .split('\n')
    .filter((line) => line.trim() !== '' && !/^\s*(?:#private|private .*);$/.test(line))
  return lines
    .map((line) => line.trimEnd())
    .join('\n')
    .trim()
}

export function parseModule(text: string): Module {
  const module: Module = {
    documented: new Set(),
    declared: new Map(),
    imported: new Map(),
    exported: new Map(),
    stars: [],
  }
  for (const { text: statement, documented } of documentedStatements(text)) {
    const [, star] = STAR.exec(statement) ?? []
    const [, verb, list, file] = LIST.exec(statement) ?? []
    const [, isExported, name] = DECLARATION.exec(statement) ?? []
    if (star !== undefined) module.stars.push(star)
    else if (list !== undefined) addList(module, verb as string, list, file)
    else if (name !== undefined) {
      if (documented) module.documented.add(name)
      const plain = statement.replace(/^(?:export )?(?:declare )?/, '')
      module.declared.set(name, [...(module.declared.get(name) ?? []), plain])
      if (isExported !== undefined) module.exported.set(name, name)
    }
  }
  return module
}

function addList(module: Module, verb: string, list: string, file: string | undefined): void {
  for (const item of list.split(',')) {
    const [name, alias = name] = item
      .trim()
      .replace(/^type /, '')
      .split(' as ')
    if (name === undefined || alias === undefined || name === '') continue
    const target = file === undefined ? name : { file, name }
    if (verb === 'export') module.exported.set(alias, target)
    else if (typeof target === 'object') module.imported.set(alias, target)
  }
}

/** Reads modules by path; `.ts` in an import means the declarations beside it. */
export class Surface {
  readonly #read: (file: string) => string
  readonly #modules = new Map<string, Module>()
  /** `file name` to declaration. */
  readonly #reached = new Map<string, { readonly name: string; readonly texts: readonly string[] }>()
  readonly #exported = new Set<string>()
  readonly #doors: string[] = []

  constructor(read: (file: string) => string = (file) => readFileSync(file, 'utf8')) {
    this.#read = read
  }

  addDoor(title: string, file: string): void {
    const names = this.#names(join(file))
    this.#doors.push([`${title}:`, ...[...names.keys()].toSorted()].join('\n    '))
    for (const { file: home, name } of names.values()) {
      this.#exported.add(`${home} ${name}`)
      this.#reach(home, name)
    }
  }

  /** Exported names that no comment tells users about. */
  undocumented(): readonly string[] {
    return [...this.#exported].filter((id) => {
      const [file = '', name = ''] = id.split(' ')
      return !this.#module(file).documented.has(name)
    })
  }

  toString(): string {
    const declarations = [...this.#reached].map(
      ([id, { texts }]) => (this.#exported.has(id) ? '' : '(not exported) ') + texts.join('\n'),
    )
    const byName = [...this.#reached.values()].map(({ name }, index) => [name, declarations[index]] as const)
    const sorted = byName.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([, text]) => text)
    return `${[...this.#doors, ...sorted].join('\n\n')}\n`
  }

  #module(file: string): Module {
    const module = this.#modules.get(file) ?? parseModule(this.#read(file))
    this.#modules.set(file, module)
    return module
  }

  /** Every public name of a module, and where it is declared. */
  #names(file: string): Map<string, Elsewhere> {
    const module = this.#module(file)
    const names = new Map<string, Elsewhere>()
    for (const star of module.stars) for (const [name, home] of this.#names(beside(file, star))) names.set(name, home)
    for (const [name, target] of module.exported) {
      const home =
        typeof target === 'string'
          ? this.#resolve(file, target)
          : this.#names(beside(file, target.file)).get(target.name)
      if (home === undefined) throw new Error(`${file} exports ${name}, which is nowhere`)
      names.set(name, home)
    }
    return names
  }

  /** Where a name that is used in `file` is declared; undefined for what is not ours. */
  #resolve(file: string, name: string): Elsewhere | undefined {
    const module = this.#module(file)
    if (module.declared.has(name)) return { file, name }
    const imported = module.imported.get(name)
    if (imported === undefined || !imported.file.startsWith('.')) return undefined
    return this.#names(beside(file, imported.file)).get(imported.name)
  }

  #reach(file: string, name: string): void {
    const id = `${file} ${name}`
    if (this.#reached.has(id)) return
    const texts = this.#module(file).declared.get(name) ?? []
    this.#reached.set(id, { name, texts })
    for (const [word] of texts
      .join('\n')
      .replaceAll(/'[^']*'|"[^"]*"/g, '')
      .matchAll(/[\w$]+/g)) {
      const home = this.#resolve(file, word)
      if (home !== undefined) this.#reach(home.file, home.name)
    }
  }
}

function beside(file: string, relative: string): string {
  return join(dirname(file), relative.replace(/(?<!\.d)\.(?:ts|js)$/, '.d.ts'))
}
