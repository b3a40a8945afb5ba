/**
 * Packages that the user installs: a client for each kind of server, and SQLite for a Node without one.
 *
 * A program that imports Holdfast has them beside it. The command `holdfast` may be installed for the whole machine,
 * and the client in a project: it looks where it is itself, and then in the project that it was started in. A package
 * that is in neither place is told in one sentence, with the command that installs it.
 *
 * A folder that a command is started in can be another user's, or one that all users may write, such as /tmp. What such
 * a user has laid out there is not run: only packages of this user and of root are.
 */
import { existsSync, lstatSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { EngineError } from '../../core/errors.ts'

/** Whether this process is the command. */
let isCommand = false
/** To be called before the first package is loaded. */
let beforeLoading: (() => void) | undefined

/**
 * Look for packages in the working folder, too. Only for the command: the working folder of a server says nothing about
 * whose code it may run. `prepare` is called before the first package is loaded.
 */
export function alsoLoadFromWorkingFolder(prepare?: () => void): void {
  isCommand = true
  beforeLoading = prepare
}

/** The client of `engine`: `load` imports `name`. */
export async function loadClient<Module>(engine: string, name: string, load: () => Promise<Module>): Promise<Module> {
  try {
    return await loadPackage(name, load)
  } catch (cause) {
    if (!isMissing(cause, name)) throw cause
    const message = `its client is not installed: ${installCommand(name)}`
    throw new EngineError(engine, message, { outcome: 'not-applied', transient: false, cause })
  }
}

/** `load` imports `name` from where Holdfast is; if it is not there, the command imports it from the user's project. */
export async function loadPackage<Module>(name: string, load: () => Promise<Module>): Promise<Module> {
  beforeLoading?.()
  beforeLoading = undefined
  try {
    return (isCommand ? required<Module>(import.meta.url, name) : undefined) ?? (await load())
  } catch (error) {
    const found = isCommand && isMissing(error, name) ? lookInProject(name) : undefined
    if (found === undefined || found.foreignOwner !== undefined) throw error
    const { file } = found
    return required<Module>(file, file) ?? ((await import(pathToFileURL(file).href)) as Module)
  }
}

/**
 * The package as `require` gives it, in the shape in which `import` would; undefined if it cannot be required. The
 * command is CommonJS, and so are the clients: without one `import`, Node does not start its loader of modules, which
 * takes longer than all of ours does.
 */
function required<Module>(from: string, name: string): Module | undefined {
  try {
    const exported = createRequire(from)(name) as object
    return Object.create(exported, { default: { value: exported } }) as Module
  } catch {
    return undefined
  }
}

/**
 * The compiled half of a package that is where Holdfast is, in the place where prebuildify puts it; undefined if it is
 * not there, and for a program. The command is started again and again, and the other half of the package, with what
 * finds this one, takes four times as long to load. What the user has compiled is for `loadPackage` to choose.
 */
export function loadBinding(name: string): object | undefined {
  if (!isCommand || process.platform !== 'linux' || process.env.LIBC || existsSync('/etc/alpine-release'))
    return undefined
  const folder = folderOf(packageOf(name))
  if (folder === undefined || existsSync(join(folder, 'build'))) return undefined
  const file = `${packageOf(name).replace('/', '+')}.glibc.node`
  const module = { exports: {} }
  try {
    process.dlopen(module, join(folder, 'prebuilds', `${process.platform}-${process.arch}`, file))
    return module.exports
  } catch {
    return undefined
  }
}

/** The nearest one, from Holdfast upwards. */
function folderOf(installed: string): string | undefined {
  for (let above = import.meta.dirname; above !== dirname(above); above = dirname(above)) {
    const folder = join(above, 'node_modules', installed)
    if (existsSync(folder)) return folder
  }
  return undefined
}

/** The command that installs `name` where the next attempt looks. */
export function installCommand(name: string): string {
  const installed = packageOf(name)
  if (!isCommand) return `npm install ${installed}`
  // npx has put us into a folder of its own, and looks in no other.
  if (fileURLToPath(import.meta.url).includes(`${sep}_npx${sep}`)) return `npx -p holdfast -p ${installed} holdfast`
  const { folder, foreignOwner } = lookInProject(name) ?? {}
  if (foreignOwner !== undefined)
    return `npm install -g ${installed} (that in '${folder}' belongs to user ${foreignOwner}, and is not run)`
  return isInProject() ? `npm install ${installed}` : `npm install -g ${installed}`
}

interface ProjectPackage {
  /** Its `node_modules`. */
  readonly folder: string
  readonly file: string
  /** The user that it belongs to, if that is neither this one nor root. */
  readonly foreignOwner: number | undefined
}

/** The package as the project of the working folder has it; undefined if it has none. */
function lookInProject(name: string): ProjectPackage | undefined {
  try {
    const { resolve } = createRequire(join(process.cwd(), 'package.json'))
    const file = resolve(name)
    const has = (folder: string): boolean => existsSync(join(folder, packageOf(name)))
    const folder = resolve.paths(name)?.find(has) ?? dirname(file)
    const own = process.geteuid?.()
    const owners = [folder, join(folder, packageOf(name))].map((path) => lstatSync(path).uid)
    return { folder, file, foreignOwner: owners.find((uid) => own !== undefined && uid !== own && uid !== 0) }
  } catch {
    return undefined
  }
}

/** Whether npm would install something here into a project: as npm does, look upwards from the working folder. */
function isInProject(): boolean {
  let folder: string
  try {
    folder = process.cwd()
  } catch {
    // It was removed while this process is in it.
    return false
  }
  while (!existsSync(join(folder, 'package.json'))) {
    if (folder === dirname(folder)) return false
    folder = dirname(folder)
  }
  return true
}

/** Whether that very package is not installed. What is missing inside of it is another error. */
export function isMissing(error: unknown, name: string): boolean {
  const { code, message } = error as NodeJS.ErrnoException
  return code === 'ERR_MODULE_NOT_FOUND' && message.includes(`'${packageOf(name)}'`)
}

/** `mysql2` for `mysql2/promise`, `@scope/name` for itself. */
function packageOf(name: string): string {
  const parts = name.split('/')
  return parts.slice(0, name.startsWith('@') ? 2 : 1).join('/')
}
