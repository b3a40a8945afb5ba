/**
 * The public surface as text, from the emitted declarations: for each door of package.json the names behind it, then
 * every declaration that can be reached from them, once, without comments and private members. Types that are reachable
 * but not exported are surface too, and are marked.
 */
import { join } from 'node:path'
import { Declarations, type Elsewhere, idOf } from '../site/declarations.ts'

export class Surface {
  readonly #declarations: Declarations
  readonly #reached = new Map<string, Elsewhere>()
  readonly #exported = new Map<string, Elsewhere>()
  readonly #doors: string[] = []

  constructor(read?: (file: string) => string) {
    this.#declarations = new Declarations(read)
  }

  addDoor(title: string, file: string): void {
    const names = this.#declarations.names(join(file))
    this.#doors.push([`${title}:`, ...[...names.keys()].toSorted()].join('\n    '))
    for (const home of names.values()) {
      this.#exported.set(idOf(home), home)
      this.#reach(home)
    }
  }

  /** Exported names that no comment tells users about. */
  undocumented(): readonly string[] {
    return [...this.#exported.values()]
      .filter((home) => this.#declarations.declared(home).every(({ doc }) => doc === undefined))
      .map(idOf)
  }

  /** What has to be named to use `name` of a module, itself included, and is not exported by that module. */
  lackingFor(name: string, file: string): readonly string[] {
    const names = this.#declarations.names(join(file))
    const exported = new Set([...names.values()].map(idOf))
    const home = names.get(name)
    if (home === undefined) return [name]
    this.#reach(home)
    return [...this.#reached].filter(([id]) => !exported.has(id)).map(([, { name: lacking }]) => lacking)
  }

  toString(): string {
    const declarations = [...this.#reached].map(([id, home]) => {
      const texts = this.#declarations.declared(home).map(({ text }) => text)
      return [home.name, (this.#exported.has(id) ? '' : '(not exported) ') + texts.join('\n')] as const
    })
    const sorted = declarations.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([, text]) => text)
    return `${[...this.#doors, ...sorted].join('\n\n')}\n`
  }

  #reach(home: Elsewhere): void {
    if (this.#reached.has(idOf(home))) return
    this.#reached.set(idOf(home), home)
    for (const other of this.#declarations.mentioned(home)) this.#reach(other)
  }
}
