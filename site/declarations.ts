/**
 * Reads the declarations that tsc emits (`.d.ts`), with the comments for users: what a module exports, where each name
 * is declared, and what is said about it. The test of the public surface and the API reference are made from it.
 *
 * It reads only the regular shape that tsc writes, so that it needs no compiler: one statement after the other, closed
 * by `;`, or by a `}` on a line's end.
 */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** A name of another module. */
export interface Elsewhere {
  readonly file: string
  readonly name: string
}

export interface Statement {
  /** Without comments, and without private members. */
  readonly text: string
  /** The comment for users that stands before it; undefined if there is none. */
  readonly doc: string | undefined
  /** As it was written. */
  readonly raw: string
}

export interface Module {
  /** What is declared here; several statements for overloads. */
  readonly declared: Map<string, Statement[]>
  readonly imported: Map<string, Elsewhere>
  /** Public name to local name, or to another module's. */
  readonly exported: Map<string, string | Elsewhere>
  /** Modules exported with `*`. */
  readonly stars: string[]
}

/** `module`: what is added to a package of another maker. It is no name of ours. */
const BODY = /^(?:export )?(?:declare )?(?:abstract )?(?:class|interface|enum|namespace|module) /
const DECLARATION =
  /^(export )?(?:default )?(?:declare )?(?:abstract )?(?:class|interface|enum|namespace|type|function|const|let) ([\w$]+)/
const LIST = /^(import|export) (?:type )?\{([^}]*)\}(?: from '([^']+)')?/
const STAR = /^export (?:type )?\* from '([^']+)'/

/** Comments, strings and single characters. */
const TOKEN = /\/\*.*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|./gs

/** The statements of a declaration file. */
export function statements(text: string): readonly Statement[] {
  const found: Statement[] = []
  let statement = ''
  let doc: string | undefined
  let from: number | undefined
  let depth = 0
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    // The letter to the reader of a file is followed by an empty line, or by what the file imports.
    if (token.startsWith('/**') && statement.trim() === '')
      doc = text[index + token.length + 1] === '\n' ? undefined : commentText(token)
    if (token.startsWith('/*') || token.startsWith('//')) continue
    if (token.trim() !== '') from ??= index
    statement += token
    if (token === '{' || token === '(' || token === '[') depth += 1
    if (token === '}' || token === ')' || token === ']') depth -= 1
    const endsLine = text[index + 1] === '\n' || index + 1 === text.length
    const closesBody = token === '}' && endsLine && BODY.test(statement.trimStart())
    if (depth === 0 && (token === ';' || closesBody)) {
      found.push({ text: tidy(statement), doc, raw: text.slice(from, index + 1) })
      statement = ''
      doc = undefined
      from = undefined
    }
  }
  return found
}

/** What a comment says, without its stars. */
export function commentText(comment: string): string {
  return comment
    .replace(/^\/\*\*+/, '')
    .replace(/\*\/$/, '')
    .replaceAll(/^[ \t]*\* ?/gm, '')
    .trim()
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

export interface Member {
  readonly name: string
  readonly doc: string
}

/** The members of a class, of an interface or of an object type about which something is said. */
export function members(raw: string): readonly Member[] {
  const found: Member[] = []
  let depth = 0
  let doc: string | undefined
  let text = ''
  for (const [token] of raw.matchAll(TOKEN)) {
    if (token.startsWith('/*') || token.startsWith('//')) {
      if (depth === 1 && text.trim() === '' && token.startsWith('/**')) doc = commentText(token)
      continue
    }
    if (/[)\]}]/.test(token)) depth -= 1
    if (depth >= 1) text += token
    if (/[([{]/.test(token)) depth += 1
    if (depth === 1 && token === ';') {
      const [, name] = /^\s*(?:(?:readonly|static|abstract|get|set) )*(\[[^\]]+\]|[\w$]+)/.exec(text) ?? []
      if (name !== undefined && doc !== undefined) found.push({ name, doc })
      doc = undefined
      text = ''
    }
  }
  return found
}

function parseModule(text: string): Module {
  const module: Module = { declared: new Map(), imported: new Map(), exported: new Map(), stars: [] }
  for (const statement of statements(text)) {
    const [, star] = STAR.exec(statement.text) ?? []
    const [, verb, list, file] = LIST.exec(statement.text) ?? []
    const [, isExported, name] = DECLARATION.exec(statement.text) ?? []
    if (star !== undefined) module.stars.push(star)
    else if (list !== undefined) addList(module, verb as string, list, file)
    else if (name !== undefined) {
      const plain = statement.text.replace(/^(?:export )?(?:declare )?/, '')
      module.declared.set(name, [...(module.declared.get(name) ?? []), { ...statement, text: plain }])
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
export class Declarations {
  readonly #read: (file: string) => string
  readonly #modules = new Map<string, Module>()

  constructor(read: (file: string) => string = (file) => readFileSync(file, 'utf8')) {
    this.#read = read
  }

  #module(file: string): Module {
    const module = this.#modules.get(file) ?? parseModule(this.#read(file))
    this.#modules.set(file, module)
    return module
  }

  /** The statements that declare a name: one, or several overloads. */
  declared({ file, name }: Elsewhere): readonly Statement[] {
    return this.#module(file).declared.get(name) ?? []
  }

  /** Every public name of a module, and where it is declared. */
  names(file: string): ReadonlyMap<string, Elsewhere> {
    const module = this.#module(file)
    const names = new Map<string, Elsewhere>()
    for (const star of module.stars) for (const [name, home] of this.names(beside(file, star))) names.set(name, home)
    for (const [name, target] of module.exported) {
      const home =
        typeof target === 'string' ? this.resolve(file, target) : this.names(beside(file, target.file)).get(target.name)
      if (home === undefined) throw new Error(`${file} exports ${name}, which is nowhere`)
      names.set(name, home)
    }
    return names
  }

  /** Where a name that is used in `file` is declared; undefined for what is not ours. */
  resolve(file: string, name: string): Elsewhere | undefined {
    const module = this.#module(file)
    if (module.declared.has(name)) return { file, name }
    const imported = module.imported.get(name)
    if (imported === undefined || !imported.file.startsWith('.')) return undefined
    return this.names(beside(file, imported.file)).get(imported.name)
  }

  /** What the declaration of a name speaks of, in order, itself left out. */
  mentioned(home: Elsewhere): readonly Elsewhere[] {
    const text = this.declared(home)
      .map((statement) => statement.text)
      .join('\n')
    const found = new Map<string, Elsewhere>()
    for (const [word] of text.replaceAll(/'[^']*'|"[^"]*"/g, '').matchAll(/[\w$]+/g)) {
      const other = this.resolve(home.file, word)
      if (other !== undefined && idOf(other) !== idOf(home)) found.set(idOf(other), other)
    }
    return [...found.values()]
  }
}

/** One text for one declaration. */
export function idOf({ file, name }: Elsewhere): string {
  return `${file} ${name}`
}

function beside(file: string, relative: string): string {
  return join(dirname(file), relative.replace(/(?<!\.d)\.(?:ts|js)$/, '.d.ts'))
}
